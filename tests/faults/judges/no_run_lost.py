"""NoRunLost: every scheduled time of every enabled job is admitted, or recorded with the policy's reason."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from tests.faults.events import Row, Run, Skip
from tests.faults.history import History
from tests.faults.judges.breach import Breach
from tests.faults.judges.lag import allowed_lag_us
from tests.faults.oracle import Expected, Version

PROMISE = "NoRunLost"
_MISFIRES = {
    "misfire: policy SKIP": "SKIP",
    "misfire: superseded by a newer missed run": "FIRE_NOW",
    "misfire: beyond catch_up_limit": "CATCH_UP",
}
_OVERLAPS = {"overlap": "skip", "queue full": "queue"}
CLOCK_BEHIND_US = 500_000
"""A leader's clock may be behind the database's, by a round trip: it publishes what it learnt from a commit with an
earlier time than the commit's."""
_PAUSED = "paused"
_SUPERSEDED = "misfire: superseded by a newer missed run"


def no_run_lost(history: History, expected: Expected) -> Iterator[Breach]:
    """Each time that the oracle demands has an admitted run, or a skip whose reason the definition accounts for.

    History must say the same: a row for each end and each skip. A skip counts what it covers, and
    what FIRE_NOW skips is followed by the run that it was skipped for.
    """
    rows = {(row.run, row.attempt) for row in history.of(Row)}
    for job_id, times in expected.times.items():
        skips = history.skips_by_job.get(job_id, [])
        for at, version in times.items():
            run = (job_id, at, 0)
            if run in history.first_admitted:
                for attempt in history.ends.get(run, ()):
                    if (run, attempt) not in rows:
                        yield Breach(PROMISE, f"the end of attempt {attempt} is not in job_runs", *run)
                continue
            covering = [skip for skip in skips if skip.first_us <= at <= skip.last_us and skip.request_id == 0]
            if not covering:
                yield Breach(PROMISE, "neither admitted nor recorded as skipped", *run)
            elif not any(_accounted_for(history, expected, version, at, skip) for skip in covering):
                reasons = ", ".join(sorted({skip.reason for skip in covering}))
                yield Breach(PROMISE, f"skipped without ground: {reasons}", *run)
        yield from _told_of_pauses(history, expected, job_id, skips)
        yield from _skips_add_up(history, expected, job_id, skips, rows)


def _told_of_pauses(history: History, expected: Expected, job_id: int, skips: list[Skip]) -> Iterator[Breach]:
    """A single time that passed in a pause is recorded, unless it ran while the pause was on its way."""
    for version in expected.versions[job_id]:
        at = version.passed_in_pause
        if at is None or not expected.from_us < at <= version.until_us <= expected.until_us:
            continue
        told = any(skip.first_us <= at <= skip.last_us for skip in skips if skip.request_id == 0)
        if not told and (job_id, at, 0) not in history.first_admitted:
            yield Breach(PROMISE, "passed in a pause, and not recorded", job_id, at, 0)


def _accounted_for(history: History, expected: Expected, version: Version, at: int, skip: Skip) -> bool:
    """Whether the definitions give that reason at that time."""
    versions = expected.versions[version.job_id]
    later = [v for v in versions if v.from_us >= at and v.from_us <= skip.published_us + CLOCK_BEHIND_US]
    # While an edit is on its way the policy before it counts.
    earlier = [v for v in versions if v.until_us <= at <= v.until_us + allowed_lag_us(history, v.until_us)]
    # An edit that moves no time hands its policy on to what the one before still owed.
    rules = [v.rule for v in (*earlier, version, *later) if v.rule is not None]
    if skip.reason in _MISFIRES:
        misfire, age = _MISFIRES[skip.reason], skip.published_us - at
        return any(rule.misfire_policy == misfire and age > max(rule.grace_us, 1_000_000) for rule in rules)
    if skip.reason in (_PAUSED, "deleted"):
        return any(not v.fires for v in later)
    if skip.reason == "edited":
        return at - version.from_us <= allowed_lag_us(history, version.from_us)
    policy = _OVERLAPS.get(skip.reason)
    return any(rule.overlap_policy == policy for rule in rules)


def _skips_add_up(
    history: History,
    expected: Expected,
    job_id: int,
    skips: list[Skip],
    rows: set[tuple[Run, int]],
) -> Iterator[Breach]:
    times = sorted(expected.times[job_id])
    for skip in skips:
        if skip.request_id != 0 or skip.first_us <= expected.from_us or skip.last_us > expected.until_us:
            continue
        first, last = bisect_right(times, skip.first_us - 1), bisect_right(times, skip.last_us)
        # While an edit is on its way, what is skipped is counted by the definition that is known.
        versions = expected.versions[job_id]
        known = [v.times(skip.first_us - 1, skip.last_us) for v in versions]
        known += [[at] for v in versions if (at := v.passed_in_pause) == skip.last_us and skip.reason == _PAUSED]
        owed = [
            [at for at in covered if (job_id, at, 0) not in history.first_admitted]
            for covered in (times[first:last], *known)
        ]
        # What the old schedule had skipped before, the skip of the edit that followed does not count again.
        told = [other for other in skips if other.published_us < skip.published_us and _overlap(other, skip)]
        untold = [
            [at for at in covered if not any(other.first_us <= at <= other.last_us for other in told)]
            for covered in owed
        ]
        counts = [len(covered) for covered in (*owed, *untold)]
        run = (job_id, skip.last_us, 0)
        if skip.count not in counts:
            what = f"a skip ({skip.reason}) says {skip.count} times, the definitions have {counts[0]}"
            yield Breach(PROMISE, what, *run)
        if (run, 0) not in rows:
            yield Breach(PROMISE, f"a skip ({skip.reason}) is not in job_runs", *run)
        if skip.reason == _SUPERSEDED and (dropped := _dropped(history, expected, skip, skips)) is not None:
            yield Breach(PROMISE, "FIRE_NOW skipped all that was missed and ran none of it", job_id, dropped)


def _overlap(one: Skip, other: Skip) -> bool:
    return one.request_id == other.request_id and one.first_us <= other.last_us and other.first_us <= one.last_us


def _dropped(history: History, expected: Expected, skip: Skip, skips: list[Skip]) -> int | None:
    """The time for which others were skipped as superseded, if it was skipped as well."""
    version = expected.in_force(skip.job_id, skip.last_us)
    following = [] if version is None else version.times(skip.last_us, skip.published_us)
    if not following or (skip.job_id, following[0], 0) in history.first_admitted:
        return None
    again = any(other.first_us <= following[0] <= other.last_us and other.reason == _SUPERSEDED for other in skips)
    return following[0] if again else None
