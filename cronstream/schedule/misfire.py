"""What is owed for time that passed unpublished: a pure decision, bounded in work.

Every instant is judged by its own age when the decision is made:

        first                    now - grace                 now
    ──────●──────●──────●──────●──────┼──────●──────●──────────┼────○────►
          └────── missed ──────────┘         └─ within grace ─┘     next
          policy decides                     run late, in order

    FIRE_NOW   the newest missed one runs, the others are one summarised skip
    SKIP       all missed ones are one summarised skip
    CATCH_UP   the newest `catch_up_limit` missed ones run in order, older ones are one skip

Nothing is dropped silently: runs and the counts of skips add up to all instants in the range.
An outage of a year is not walked through: instants are counted by arithmetic (every) or by the
bits of month and day masks (cron), and the newest n are found by bisection over that count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

Policy = Literal["FIRE_NOW", "SKIP", "CATCH_UP"]
POLICIES: tuple[Policy, ...] = ("FIRE_NOW", "SKIP", "CATCH_UP")


class Planned(Protocol):
    """The part of a Schedule that the decision needs."""

    def next_after(self, t_us: int, /) -> int | None: ...

    def count(self, first_us: int, last_us: int, /) -> int: ...


@dataclass(frozen=True, slots=True)
class Skip:
    """A stretch of scheduled times that do not run, and why: one row of history."""

    reason: str
    first_us: int
    last_us: int
    count: int


class Owed(NamedTuple):
    """`runs` in order of scheduled time; `next_us` is the first instant after the judged range."""

    runs: tuple[int, ...]
    skips: tuple[Skip, ...]
    next_us: int | None


SUPERSEDED = "misfire: superseded by a newer missed run"
SKIPPED = "misfire: policy SKIP"
BEYOND_LIMIT = "misfire: beyond catch_up_limit"


def owed(
    schedule: Planned,
    first_us: int | None,
    now_us: int,
    *,
    policy: Policy,
    grace_us: int,
    catch_up_limit: int,
    until_us: int | None = None,
) -> Owed:
    """Judge the instants in [first_us, now_us], or up to `until_us` when an edit ended them earlier.

    `first_us` is the earliest unpublished instant, itself one of the schedule's; None when there
    is none. Ages are those at `now_us`.
    """
    last_us = now_us if until_us is None else min(until_us, now_us)
    if first_us is None or first_us > last_us:
        return Owed((), (), first_us)
    following = schedule.next_after(first_us)
    missed_until = now_us - grace_us - 1
    runs_anyway = policy == "FIRE_NOW" or (policy == "CATCH_UP" and catch_up_limit > 0)
    if (following is None or following > last_us) and (first_us > missed_until or runs_anyway):
        return Owed((first_us,), (), following)  # one instant alone: nearly always
    fresh = []
    instant = first_us if first_us > missed_until else schedule.next_after(missed_until)
    while instant is not None and instant <= last_us:
        fresh.append(instant)
        instant = schedule.next_after(instant)
    missed_until = min(missed_until, last_us)
    if first_us > missed_until:
        return Owed(tuple(fresh), (), instant)
    if policy == "FIRE_NOW":
        keep, reason = 1, SUPERSEDED
    elif policy == "SKIP":
        keep, reason = 0, SKIPPED
    else:
        keep, reason = max(0, catch_up_limit), BEYOND_LIMIT
    late, skips = _newest(schedule, first_us, missed_until, keep, reason)
    return Owed((*late, *fresh), skips, instant)


def settle(
    schedule: Planned,
    first_us: int | None,
    commit_us: int,
    now_us: int,
    *,
    policy: Policy,
    grace_us: int,
    catch_up_limit: int,
) -> Owed:
    """What the schedule before an edit owed up to the edit's commit, that instant included.

    `next_us` is of no use to the caller: the new schedule is planned strictly after the commit.
    """
    return owed(
        schedule, first_us, now_us, policy=policy, grace_us=grace_us, catch_up_limit=catch_up_limit, until_us=commit_us
    )


def abandon(schedule: Planned, first_us: int | None, commit_us: int, reason: str) -> Owed:
    """A paused or deleted job: all it owed up to the commit is recorded as skipped, nothing runs."""
    if first_us is None or first_us > commit_us:
        return Owed((), (), first_us)
    _, skips = _newest(schedule, first_us, commit_us, 0, reason)
    return Owed((), skips, schedule.next_after(commit_us))


def _newest(
    schedule: Planned, first_us: int, last_us: int, keep: int, reason: str
) -> tuple[tuple[int, ...], tuple[Skip, ...]]:
    """The newest `keep` instants of [first_us, last_us], and the older ones as one skip."""
    total = schedule.count(first_us, last_us)
    dropped = max(0, total - keep)
    kept_from = _start_of_newest(schedule, first_us, last_us, keep) if dropped else first_us
    kept = []
    instant = schedule.next_after(kept_from - 1)
    while instant is not None and instant <= last_us:
        kept.append(instant)
        instant = schedule.next_after(instant)
    if not dropped:
        return tuple(kept), ()
    last_dropped = _start_of_newest(schedule, first_us, (kept[0] if kept else last_us + 1) - 1, 1)
    return tuple(kept), (Skip(reason, first_us, last_dropped, dropped),)


def _start_of_newest(schedule: Planned, first_us: int, last_us: int, n: int) -> int:
    """The latest t with n instants in [t, last_us]; past the end for n = 0.

    Looks back in doubling steps from the end, then bisects: the ranges counted stay short.
    """
    if n == 0:
        return last_us + 1
    back = 1_000_000
    while last_us - back > first_us and schedule.count(last_us - back, last_us) < n:
        back *= 2
    low, high = max(first_us, last_us - back), last_us  # count(low) >= n; seek the last such
    while low < high:
        middle = (low + high + 1) // 2
        if schedule.count(middle, last_us) >= n:
            low = middle
        else:
            high = middle - 1
    return low
