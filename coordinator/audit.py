"""The audit: which open edits did capture miss? Its cost is the number of open edits, never of jobs.

An open change was missed when the feed has delivered something that was committed well after it. One that
has waited long while nothing at all came is planned too, but only the feed can tell whether it was lost: for as
long as capture decodes a long transaction it brings nothing, and while it brings its edits no heartbeat.
Both are planned from the table like any other.
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


def missed(changes: Iterable[OpenChange], reached_us: int | None) -> list[OpenChange]:
    """The changes that the feed has passed. ``reached_us``: the newest commit among what it delivered."""
    if reached_us is None:
        return []
    return [change for change in changes if reached_us > change.committed_us + _MARGIN_US]


def overdue(changes: Iterable[OpenChange], heard_us: int | None, now_us: int, stale_us: int) -> list[OpenChange]:
    """The changes that have waited for longer than ``stale_us``, as nothing came (at ``heard_us``) for as long."""
    if heard_us is not None and now_us - heard_us <= stale_us:
        return []
    return [change for change in changes if now_us - change.committed_us > stale_us]
