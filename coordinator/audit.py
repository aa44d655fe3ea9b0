"""The audit: which open edits did capture miss? Its cost is the number of open edits, never of jobs.

An open change counts as missed when the feed has delivered something that was committed
well after it, or when it has waited long and nothing at all came meanwhile: for as long as
capture brings the edits of a long transaction, it brings no heartbeat.
Missed changes are planned from the table like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cronstream.clock import SECOND

# Commit times and the order of the log differ a little: two commits at once may swap.
_MARGIN_US = SECOND


@dataclass(frozen=True, slots=True)
class OpenChange:
    """A row of ``job_changes``, by its commit."""

    change_id: int
    job_id: int
    committed_us: int


def missed(
    changes: Iterable[OpenChange],
    *,
    reached_us: int | None,
    heard_us: int | None,
    now_us: int,
    stale_us: int,
) -> list[OpenChange]:
    """The changes that the feed should have delivered by now.

    ``reached_us``: the newest commit among what it delivered; ``heard_us``: when it last delivered anything.
    """
    silent = heard_us is None or now_us - heard_us > stale_us
    return [
        change
        for change in changes
        if (reached_us is not None and reached_us > change.committed_us + _MARGIN_US)
        or (silent and now_us - change.committed_us > stale_us)
    ]
