"""Misfire policies by example; the invariants are in the property tests."""

from __future__ import annotations

import time

import pytest

from cronstream.schedule import Owed, Skip, abandon, owed, schedule_of, settle
from cronstream.schedule.misfire import BEYOND_LIMIT, SKIPPED, SUPERSEDED

MINUTE = 60_000_000
GRACE = {"grace_us": MINUTE, "catch_up_limit": 2}
EACH_MINUTE = schedule_of(cron="* * * * *")
T0 = 29_000_000 * MINUTE


def at(n: float) -> int:
    return int(T0 + n * MINUTE)


def test_on_time_it_runs_and_the_next_follows() -> None:
    for policy in ("FIRE_NOW", "SKIP", "CATCH_UP"):
        assert owed(EACH_MINUTE, at(0), at(0), policy=policy, **GRACE) == Owed((at(0),), (), at(1))


def test_within_the_grace_it_runs_late_whatever_the_policy() -> None:
    assert owed(EACH_MINUTE, at(0), at(1), policy="SKIP", **GRACE) == Owed((at(0), at(1)), (), at(2))


def test_nothing_due_owes_nothing() -> None:
    assert owed(EACH_MINUTE, at(5), at(4), policy="SKIP", **GRACE) == Owed((), (), at(5))
    assert owed(EACH_MINUTE, None, at(4), policy="SKIP", **GRACE) == Owed((), (), None)


@pytest.mark.parametrize(
    ("policy", "runs", "skip"),
    [
        ("FIRE_NOW", (3, 4, 5), Skip(SUPERSEDED, at(0), at(2), 3)),
        ("SKIP", (4, 5), Skip(SKIPPED, at(0), at(3), 4)),
        ("CATCH_UP", (2, 3, 4, 5), Skip(BEYOND_LIMIT, at(0), at(1), 2)),
    ],
)
def test_each_instant_is_judged_by_its_own_age(policy, runs: tuple[int, ...], skip: Skip) -> None:
    result = owed(EACH_MINUTE, at(0), at(5), policy=policy, **GRACE)
    assert result == Owed(tuple(at(n) for n in runs), (skip,), at(6))


def test_a_single_missed_run() -> None:
    daily = schedule_of(cron="@daily")
    first = daily.next_after(T0)
    now = first + 3600 * 1_000_000
    following = daily.next_after(now)
    assert owed(daily, first, now, policy="FIRE_NOW", **GRACE) == Owed((first,), (), following)
    assert owed(daily, first, now, policy="CATCH_UP", **GRACE) == Owed((first,), (), following)
    assert owed(daily, first, now, policy="SKIP", **GRACE) == Owed((), (Skip(SKIPPED, first, first, 1),), following)


def test_an_edit_settles_what_was_owed_and_nothing_after_its_commit() -> None:
    result = settle(EACH_MINUTE, at(0), at(2.5), at(3), policy="CATCH_UP", grace_us=10 * MINUTE, catch_up_limit=9)
    assert result.runs == (at(0), at(1), at(2))
    late = settle(EACH_MINUTE, at(0), at(2.5), at(60), policy="FIRE_NOW", **GRACE)
    assert late.runs == (at(2),)
    assert late.skips == (Skip(SUPERSEDED, at(0), at(1), 2),)
    assert settle(EACH_MINUTE, at(3), at(2.5), at(60), policy="FIRE_NOW", **GRACE).runs == ()


def test_a_paused_job_runs_nothing_and_says_so() -> None:
    assert abandon(EACH_MINUTE, at(0), at(2.5), "paused") == Owed((), (Skip("paused", at(0), at(2), 3),), at(3))
    assert abandon(EACH_MINUTE, at(3), at(2.5), "paused") == Owed((), (), at(3))


def test_ended_schedules_have_no_next() -> None:
    once = schedule_of(run_at_us=at(0))
    assert owed(once, at(0), at(9), policy="FIRE_NOW", **GRACE) == Owed((at(0),), (), None)


@pytest.mark.parametrize("columns", [{"cron": "* * * * * *"}, {"every_us": 1_000_000, "anchor_us": 0}])
@pytest.mark.parametrize("policy", ["FIRE_NOW", "SKIP", "CATCH_UP"])
def test_a_year_of_seconds_is_counted_not_walked(columns: dict, policy) -> None:
    schedule = schedule_of(**columns, timezone="Europe/Berlin")
    year = 365 * 86_400 * 1_000_000
    begun = time.process_time_ns()
    result = owed(schedule, T0, T0 + year, policy=policy, grace_us=MINUTE, catch_up_limit=100)
    assert time.process_time_ns() - begun < 500_000_000  # measured: under 2 ms
    assert len(result.runs) + sum(skip.count for skip in result.skips) == 365 * 86_400 + 1
