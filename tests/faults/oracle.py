"""What should have fired: by brute force, with nothing of the product's own schedule code.

A cron expression is tried at every second of the window against the wall clock
that ``zoneinfo`` shows; an interval is counted from the commit that set it. The
clock changes of a zone come to this (docs/schedules.md): where the minute or the hour
begins with ``*`` a job fires whenever the wall clock matches; any other fires in
the first pass of an hour that comes twice, and at the jump for times that it skips.

A definition holds from its commit (exclusive) to the next one's (inclusive).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from zoneinfo import ZoneInfo

import msgspec

from tests.faults.events import Edit, Jump, Rule

SECOND = 1_000_000
MINUTE = 60 * SECOND
_FIELDS = ((0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6))
_NEVER = 2**62


@dataclass(frozen=True)
class Version:
    """One definition of a job and the time in which it held: (from_us, until_us]."""

    job_id: int
    rule: Rule | None
    """None: the job was deleted."""
    anchor_us: int
    from_us: int
    until_us: int
    jump: Jump | None = None
    """Of the rule's zone, where the run has its own data for it."""

    @property
    def fires(self) -> bool:
        return self.rule is not None and self.rule.enabled

    @property
    def passed_in_pause(self) -> int | None:
        """The single time of a paused rule that passed before the edit which ended it."""
        if self.rule is None or self.rule.enabled or self.until_us == _NEVER:
            return None
        resumed = replace(self, rule=msgspec.structs.replace(self.rule, enabled=True, cron=None, every_us=None))
        return next(iter(resumed.times(self.from_us, self.until_us)), None) if self.rule.run_at_us is not None else None

    def times(self, from_us: int, until_us: int) -> list[int]:
        """The rule's scheduled times in (from_us, until_us], whether it holds then or not."""
        rule = self.rule
        if rule is None or not rule.enabled:
            return []
        from_us = max(from_us, -_NEVER if rule.starts_at_us is None else rule.starts_at_us - 1)
        until_us = min(until_us, _NEVER if rule.ends_at_us is None else rule.ends_at_us)
        if from_us >= until_us:
            return []
        offset = rule.spread_us
        if rule.every_us is not None:
            step, anchor = rule.every_us, self.anchor_us + offset
            first = anchor + max(0, (from_us - anchor) // step + 1) * step
            return list(range(first, until_us + 1, step))
        if rule.run_at_us is not None:
            return [rule.run_at_us + offset] if from_us < rule.run_at_us + offset <= until_us else []
        assert rule.cron is not None
        return [
            at + offset
            for at in _cron_between(rule.cron, self.jump or rule.timezone, from_us - offset, until_us - offset)
            if from_us < at + offset <= until_us
        ]


class Expected:
    """All versions of all jobs, and the runs that they demand in a window (from_us, until_us]."""

    def __init__(self, edits: Iterable[Edit], from_us: int, until_us: int, jumps: Iterable[Jump] = ()) -> None:
        self.from_us, self.until_us = from_us, until_us
        own_zones = {jump.zone: jump for jump in jumps}
        by_job: dict[int, list[Edit]] = defaultdict(list)
        for edit in edits:
            by_job[edit.job_id].append(edit)
        self.versions: Mapping[int, list[Version]] = {
            job_id: list(_versions(job_id, sorted(own, key=lambda edit: edit.committed_us), own_zones))
            for job_id, own in by_job.items()
        }

    @cached_property
    def times(self) -> dict[int, dict[int, Version]]:
        """By job, each scheduled time that is owed and the version that owes it, in order of time."""
        return {
            job_id: {
                at: version
                for version in versions
                for at in version.times(max(version.from_us, self.from_us), min(version.until_us, self.until_us))
            }
            for job_id, versions in self.versions.items()
        }

    @property
    def count(self) -> int:
        return sum(len(times) for times in self.times.values())

    def in_force(self, job_id: int, at_us: int) -> Version | None:
        """The version that held at an instant; None before the first."""
        found = None
        for version in self.versions.get(job_id, ()):
            if version.from_us < at_us:
                found = version
        return found

    def max_attempts(self, job_id: int) -> int:
        """The most that any version of the job allows."""
        return max(version.rule.max_attempts for version in self.versions[job_id] if version.rule is not None)


def _versions(job_id: int, edits: list[Edit], own_zones: Mapping[str, Jump]) -> Iterator[Version]:
    anchor_us, every_us = 0, None
    for edit, following in zip(edits, [*edits[1:], None], strict=True):
        if edit.rule is not None and (edit is edits[0] or edit.rule.every_us != every_us):
            anchor_us, every_us = edit.committed_us, edit.rule.every_us
        until_us = _NEVER if following is None else following.committed_us
        jump = None if edit.rule is None else own_zones.get(edit.rule.timezone)
        yield Version(job_id, edit.rule, anchor_us, edit.committed_us, until_us, jump)


@lru_cache(maxsize=4096)
def _cron_between(cron: str, zone: str | Jump, from_us: int, until_us: int) -> tuple[int, ...]:
    slices = range(from_us // (10 * MINUTE), until_us // (10 * MINUTE) + 1)
    return tuple(at for number in slices for at in _slice(cron, zone, number))


@lru_cache(maxsize=65_536)
def _slice(cron: str, zone: str | Jump, number: int) -> tuple[int, ...]:
    """The fires within ten minutes: each second is tried (each minute, where seconds are not said)."""
    fields = cron.split()
    with_seconds = len(fields) == 6
    fields = fields if with_seconds else ["0", *fields]
    sets = [_values(text, low, high) for text, (low, high) in zip(fields, _FIELDS, strict=True)]
    wildcard = fields[1].startswith("*") or fields[2].startswith("*")
    step = 1 if with_seconds else 60
    times = []
    for second in range(number * 600, number * 600 + 600, step):
        wall, again = _wall(second, zone)
        matches = _matches(wall, sets, fields) and (wildcard or not again)
        if not matches and not wildcard:
            matches = any(_matches(skipped, sets, fields) for skipped in _skipped_walls(second, zone, step))
        if matches:
            times.append(second * SECOND)
    return tuple(times)


def _wall(second: int, zone: str | Jump) -> tuple[datetime, bool]:
    """What the zone's clocks show, and whether they show it for the second time."""
    if isinstance(zone, str):
        shown = datetime.fromtimestamp(second, ZoneInfo(zone))
        return shown.replace(tzinfo=None, fold=0), shown.fold == 1
    since = second - zone.at_us // SECOND
    offset = zone.before_seconds if since < 0 else zone.after_seconds
    again = 0 <= since < zone.before_seconds - zone.after_seconds
    return datetime.fromtimestamp(second + offset, UTC).replace(tzinfo=None), again


def _skipped_walls(second: int, zone: str | Jump, step: int) -> Iterator[datetime]:
    """The wall times that a jump forward at this very instant leaves out."""
    skipped = _wall(second - step, zone)[0] + timedelta(seconds=step)
    after = _wall(second, zone)[0]
    while skipped < after:
        yield skipped
        skipped += timedelta(seconds=step)


def _matches(wall: datetime, sets: list[frozenset[int]], fields: list[str]) -> bool:
    second, minute, hour, day, month, weekday = sets
    if not (wall.second in second and wall.minute in minute and wall.hour in hour and wall.month in month):
        return False
    of_month, of_week = wall.day in day, wall.isoweekday() % 7 in weekday
    if fields[3].startswith("*") or fields[5].startswith("*"):
        return of_month and of_week
    return of_month or of_week


def _values(text: str, low: int, high: int) -> frozenset[int]:
    """The plain part of the language, which is all that the workload uses: lists, ranges, steps."""
    values: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        if span == "*":
            begin, end = low, high
        else:
            begin = int(first)
            end = int(last) if last else (high if step else begin)
        values.update(range(begin, end + 1, int(step or 1)))
    return frozenset(values)
