"""The audit: which open edits did capture miss? Its cost is the number of open edits, never of jobs.

An open change counts as missed when the feed has delivered a heartbeat that was
committed well after it, or when it has waited long while heartbeats are stale.
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
    heartbeat_us: int | None,
    now_us: int,
    stale_us: int,
) -> list[OpenChange]:
    """The changes that the feed should have delivered by now. ``heartbeat_us``: the newest one's commit."""
    return [
        change
        for change in changes
        if (heartbeat_us is not None and heartbeat_us > change.committed_us + _MARGIN_US)
        or (now_us - change.committed_us > stale_us and (heartbeat_us is None or now_us - heartbeat_us > stale_us))
    ]
