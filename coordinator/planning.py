"""Planning an edit: pure decisions about what the old schedule owed and what the new one begins with.

An edit is a chain of changes of one job, in commit order. Before each stands
the rule that was in force, after the last one the definition's own:

    rule 0 --change 1 (commit c1)--> rule 1 --change 2 (commit c2)--> rule 2 = now

For each change whose times differ before and after:

- what the rule before owed up to the commit is settled under its policy; if the
  job was paused or deleted by the change, it is recorded as skipped;
- the rule after begins strictly after the commit;
- while the change was on its way (capture lag) the old schedule may have gone on
  firing. Times of the new schedule up to the last of those are recorded as
  skipped (``edited``): a job's runs stay in order, and no time is run twice.

A change that moves no time (a new payload, a new policy) moves nothing here, so
saving a definition again never steps over a time that is due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.rules import Rule, rule_of
from cronstream.schedule import ScheduleError, Skip

# The instants of a fast schedule during a long capture outage are summed up from here on.
_MOST_WALKED = 100_000


@dataclass(frozen=True, slots=True)
class Change:
    """One edit as the table keeps it. ``previous`` are the columns before it; None for an insert."""

    change_id: int
    revision: int
    committed_us: int
    previous: Mapping[str, Any] | None


@dataclass(slots=True)
class Plan:
    """What an edit comes to: settled times in order, and where the job stands now."""

    runs: list[int] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    next_us: int | None = None
    anchor_us: int | None = None
    rule: Rule | None = None
    """None when the job is gone, or cannot be read (then ``error`` says why)."""
    error: str | None = None


def replan(
    changes: Sequence[Change],
    definition: Mapping[str, Any] | None,
    *,
    next_us: int | None,
    anchor_us: int | None,
    now_us: int,
) -> Plan:
    """Decide what becomes of a job whose definition was changed.

    ``next_us`` is (a lower bound of) the earliest time not yet published under the
    rule before the first change, None if it had none; ``anchor_us`` the stored anchor.
    """
    plan = Plan(anchor_us=anchor_us)
    columns = [*(change.previous for change in changes), definition]
    try:
        before = _rule(columns[0], anchor_us)
    except ScheduleError:
        # The old definition could not be read and so owed nothing; the new one may be sound.
        before, next_us = Rule(None), None
    for change, old, new in zip(changes, columns[:-1], columns[1:], strict=True):
        if new is not None and (old is None or old["every_us"] != new["every_us"]):
            plan.anchor_us = change.committed_us
        try:
            after = _rule(new, plan.anchor_us)
        except ScheduleError as error:
            after, plan.error = Rule(None), str(error)
        else:
            plan.error = None
        if before is None or not before.same_times(after):
            next_us = _hand_over(plan, before, after, change.committed_us, next_us, now_us)
        before = after
    if plan.error is not None:
        at = changes[-1].committed_us
        plan.skips.append(Skip(f"invalid: {plan.error}", at, at, 1))
    if before is not None and next_us is not None:
        # What came in may have been a lower bound; what goes out is a time of the schedule.
        next_us = before.next_after(next_us - 1)
    plan.next_us = next_us
    plan.rule = before
    return plan


def _rule(columns: Mapping[str, Any] | None, anchor_us: int | None) -> Rule | None:
    return None if columns is None else rule_of(columns, anchor_us)


def _hand_over(
    plan: Plan, before: Rule | None, after: Rule | None, commit_us: int, next_us: int | None, now_us: int
) -> int | None:
    """Settle what ``before`` owed at the commit; return the first time of ``after``."""
    published_us = commit_us
    if before is not None and next_us is not None:
        first = before.next_after(next_us - 1)
        if first is not None and first <= commit_us:
            _settle(plan, before, after, first, commit_us, now_us)
        elif first is not None:
            published_us = _last_published(before, commit_us, first)
    if after is None or after.schedule is None:
        return None
    begins = after.next_after(commit_us)
    if begins is None:
        _note_past(plan, after, commit_us)
        return None
    if begins <= published_us:
        plan.skips.extend(after.given_up(begins, published_us, "edited"))
        return after.next_after(published_us)
    return begins


def _settle(plan: Plan, before: Rule, after: Rule | None, first: int, commit_us: int, now_us: int) -> None:
    if after is None or after.schedule is None:
        plan.skips.extend(before.given_up(first, commit_us, "deleted" if after is None else "paused"))
        return
    owed = before.owed(first, now_us, until_us=commit_us)
    plan.runs.extend(owed.runs)
    plan.skips.extend(owed.skips)


def _last_published(before: Rule, commit_us: int, first_unpublished: int) -> int:
    """The newest time after the commit that the old schedule has already published; else the commit."""
    published = commit_us
    for _ in range(_MOST_WALKED):
        following = before.next_after(published)
        if following is None or following >= first_unpublished:
            return published
        published = following
    return first_unpublished - 1


def _note_past(plan: Plan, after: Rule, commit_us: int) -> None:
    """A schedule that is over before it begins: say so, rather than never be heard of again."""
    only = after.next_after(-(2**62))
    if only is not None:
        plan.skips.append(Skip("already past when the definition was committed", only, only, 1))
