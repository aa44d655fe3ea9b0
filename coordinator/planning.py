"""Planning an edit: pure decisions about what the old schedule owed and what the new one begins with.

An edit is a chain of changes of one job, in commit order. Changes that move no
time fall out (a new payload, a new policy: saving a definition again never steps
over a time that is due). The others cut time into stretches, one rule each:

    rule 0        c1        rule 1        c2        rule 2 = the definition's own
    ──●────●──────┼────●────●────●────●───┼───●────────●────────► time
      └ owed ┘    └───── published ────┘
                      by rule 0 meanwhile

- what a rule owed up to the end of its stretch is settled under its policy; if
  the job was paused or deleted then, it is recorded as skipped;
- a rule's own times begin strictly after the commit that brought it;
- of the times that pass in a pause nothing is kept, but for a single one: it was the job's only one, and the next
  edit, or the deletion, records it as skipped. The anchor says from when on it has been waiting;
- while the change was on its way (capture lag) rule 0 went on being published.
  Times of later rules up to the last of those do not run any more: one that was
  published anyway is done, the others are recorded as skipped (``edited``). So
  a job's runs stay in order, and no time is published twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.rules import Rule, rule_of
from cronstream import skips
from cronstream.schedule import ScheduleError, Skip

# The instants of a fast schedule during a long capture outage are summed up from here on.
_MOST_WALKED = 100_000
_LONG_AGO_US = -(2**62)


@dataclass(frozen=True, slots=True)
class Change:
    """One edit as the table keeps it. ``previous`` are the columns before it; None for an insert."""

    change_id: int
    revision: int
    committed_us: int
    previous: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Passed:
    """What went out under the schedule before an edit, for times after its commit, while it was on its way."""

    until_us: int = _LONG_AGO_US
    times: frozenset[int] = frozenset()


_NOTHING = Passed()


@dataclass(slots=True)
class Plan:
    """What an edit comes to: settled times in order, and where the job stands now."""

    runs: list[int] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    next_us: int | None = None
    anchor_us: int | None = None
    """Of an interval; of a single time that is paused: all of it up to here is settled."""
    rule: Rule | None = None
    """None when the job is gone; without a schedule when it is paused or cannot be read."""
    passed: Passed = field(default_factory=Passed)
    """For the next edit of the job, which may have committed before this one was planned."""


@dataclass(slots=True)
class _Stretch:
    """A rule from the commit that brought it to that of the next one."""

    rule: Rule | None
    begins_us: int = _LONG_AGO_US
    before_owes: str | None = None
    """Why what the rule before owed is given up; None: it is settled under that rule's policy."""
    known_us: int | None = None
    """The only time that the columns before already named: no news, wherever it lies."""


def replan(
    changes: Sequence[Change],
    definition: Mapping[str, Any] | None,
    *,
    next_us: int | None,
    anchor_us: int | None,
    now_us: int,
    settled_us: int = _LONG_AGO_US,
    passed: Passed = _NOTHING,
) -> Plan:
    """Decide what becomes of a job whose definition was changed.

    ``next_us`` is (a lower bound of) the earliest time not yet published under the
    rule before the first change, None if it had none; ``anchor_us`` the stored anchor.
    All up to ``settled_us`` was published already, by a leader that planned these changes
    and died before that was written. ``passed`` is that of the job's last plan in this term: an edit that
    committed before that plan was made finds its times already out.
    """
    plan = Plan(anchor_us=anchor_us, passed=passed)
    stretches = _stretches(plan, changes, definition)
    old, last = stretches[0], stretches[-1]
    plan.rule = last.rule
    published, passed_us = set(passed.times), passed.until_us
    if old is last:
        plan.next_us = _goes_on(old.rule, next_us, changes[-1].committed_us, now_us)
    else:
        published, passed_us = _published(old.rule, stretches[1].begins_us, next_us, now_us)
        published |= {instant for instant in passed.times if instant > stretches[1].begins_us}
        passed_us = max(passed_us, passed.until_us)
        plan.passed = Passed(passed_us, frozenset(published)) if published else _NOTHING
        first = None if next_us is None else _after(old.rule, max(next_us - 1, settled_us))
        for stretch, following in zip(stretches, [*stretches[1:], None], strict=True):
            until_us = passed_us if following is None else following.begins_us
            if stretch is not old:
                _note_past(plan, stretch)
                _pass_over(plan, stretch, min(passed_us, until_us), published)
                first = _after(stretch.rule, max(stretch.begins_us, passed_us, settled_us))
            if following is None:
                plan.next_us = first
            elif stretch.rule is not None and first is not None and first <= until_us:
                reason = skips.DELETED if last.rule is None else following.before_owes
                _settle(plan, stretch.rule, first, until_us, now_us, reason)
    plan.skips = [skip for skip in plan.skips if not (skip.reason == skips.PAUSED and skip.last_us in published)]
    if plan.anchor_us is not None and _waiting(definition) is not None:
        plan.anchor_us = max(plan.anchor_us, passed_us)
    return plan


def _stretches(plan: Plan, changes: Sequence[Change], definition: Mapping[str, Any] | None) -> list[_Stretch]:
    """The rules that were in force, one after the other; keeps the plan's anchor and notes an unreadable end."""
    columns = [*(change.previous for change in changes), definition]
    try:
        stretches = [_Stretch(_rule(columns[0], plan.anchor_us))]
    except ScheduleError:
        # The old definition could not be read and so owed nothing; the new one may be sound.
        stretches = [_Stretch(Rule(None))]
    commit_us, error = _LONG_AGO_US, None
    for change, old, new in zip(changes, columns[:-1], columns[1:], strict=True):
        commit_us = max(commit_us, change.committed_us)
        waited = _waiting(old)
        if waited is not None and plan.anchor_us is not None and plan.anchor_us < waited <= commit_us:
            plan.skips.append(Skip(skips.PAUSED, waited, waited, 1))
        if new is not None and (old is None or plan.anchor_us is None or old["every_us"] != new["every_us"]):
            plan.anchor_us = change.committed_us
        if _waiting(new) is not None:
            plan.anchor_us = commit_us
        try:
            after, error = _rule(new, plan.anchor_us), None
        except ScheduleError as unreadable:
            after, error = Rule(None), f"{skips.INVALID}{unreadable}"
        before = stretches[-1].rule
        if before is not None and before.same_times(after):
            stretches[-1].rule = after
            continue
        ended = skips.DELETED if after is None else None if after.schedule else error or skips.PAUSED
        known_us = old["run_at_us"] if old is not None and new is not None else None
        stretches.append(_Stretch(after, commit_us, ended, known_us))
    if error is not None:
        plan.skips.append(Skip(error, commit_us, commit_us, 1))
    return stretches


def _waiting(columns: Mapping[str, Any] | None) -> int | None:
    """The single time of a paused definition, past or not."""
    if columns is None or columns["enabled"] or columns["run_at_us"] is None:
        return None
    try:
        return rule_of({**columns, "enabled": True}, None).next_after(_LONG_AGO_US)
    except ScheduleError:
        return None


def _rule(columns: Mapping[str, Any] | None, anchor_us: int | None) -> Rule | None:
    return None if columns is None else rule_of(columns, anchor_us)


def _after(rule: Rule | None, instant_us: int) -> int | None:
    return None if rule is None else rule.next_after(instant_us)


def _at_or_after(rule: Rule | None, instant_us: int | None) -> int | None:
    """What came in may have been a lower bound; what goes out is a time of the schedule."""
    return None if instant_us is None else _after(rule, instant_us - 1)


def _goes_on(rule: Rule | None, next_us: int | None, commit_us: int, now_us: int) -> int | None:
    """The next time when the edit moved none. A job with times ahead and no next one had been set aside."""
    if next_us is None and _after(rule, now_us) is not None:
        return _after(rule, commit_us)
    return _at_or_after(rule, next_us)


def _times(rule: Rule | None, after_us: int, until_us: int) -> Iterator[int]:
    instant = _after(rule, after_us)
    while instant is not None and instant <= until_us:
        yield instant
        instant = _after(rule, instant)


def _published(rule: Rule | None, commit_us: int, next_us: int | None, now_us: int) -> tuple[set[int], int]:
    """Times of the old rule after the commit that are out already, and how far they reach (else the commit)."""
    # All before the next time is out; a rule without a next one has come to its end.
    until_us = now_us if next_us is None else next_us - 1
    published: set[int] = set()
    reaches_us = commit_us
    for instant in _times(rule, commit_us, until_us):
        if len(published) == _MOST_WALKED:
            return published, until_us
        published.add(instant)
        reaches_us = instant
    return published, reaches_us


def _pass_over(plan: Plan, stretch: _Stretch, until_us: int, published: set[int]) -> None:
    """Record the stretch's times that came too late, but for those that ran under the old rule."""
    rule = stretch.rule
    if rule is None or rule.schedule is None or until_us <= stretch.begins_us:
        return
    passed: list[int] = []
    for instant in _times(rule, stretch.begins_us, until_us):
        if len(passed) == _MOST_WALKED:
            plan.skips.extend(rule.given_up(passed[0], until_us, skips.EDITED))
            return
        if instant not in published:
            passed.append(instant)
    if passed:
        plan.skips.append(Skip(skips.EDITED, passed[0], passed[-1], len(passed)))


def _settle(plan: Plan, rule: Rule, first: int, until_us: int, now_us: int, reason: str | None) -> None:
    """What a rule owed from ``first`` to the end of its stretch: judged under its policy, or given up."""
    if reason is not None:
        plan.skips.extend(rule.given_up(first, until_us, reason))
        return
    owed = rule.owed(first, now_us, until_us=until_us)
    plan.runs.extend(owed.runs)
    plan.skips.extend(owed.skips)


def _note_past(plan: Plan, stretch: _Stretch) -> None:
    """A single time that is over before it begins: say so, rather than never be heard of again."""
    schedule = None if stretch.rule is None else stretch.rule.schedule
    if schedule is None or schedule.kind != "once":
        return
    only = schedule.next_after(_LONG_AGO_US)
    if only is not None and only <= stretch.begins_us and only - schedule.offset_us != stretch.known_us:
        plan.skips.append(Skip(skips.ALREADY_PAST, only, only, 1))
