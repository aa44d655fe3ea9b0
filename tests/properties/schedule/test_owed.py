"""Misfires: every instant of an outage runs or is counted, whatever the schedule and policy."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cronstream.schedule import POLICIES, Every, Schedule, abandon, compile_cron, owed, settle
from cronstream.schedule.misfire import BEYOND_LIMIT, SKIPPED, SUPERSEDED

COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
SECOND = 1_000_000
NIGHT = 1_792_900_000 * SECOND  # 2026-10-25, hours before Europe leaves summer time

cron_schedules = st.builds(
    lambda text, zone, offset, starts, ends: Schedule.of(
        compile_cron(text, zone),
        offset_us=offset * SECOND,
        starts_at_us=None if starts is None else NIGHT + starts * SECOND,
        ends_at_us=None if ends is None else NIGHT + ends * SECOND,
    ),
    st.sampled_from(["*/5 * * * *", "30 2 * * *", "0 0 * * *", "*/20 * * * * *", "0,30 1-3 * * *", "0 9 * * 1-5"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
    st.integers(0, 100),
    st.none() | st.integers(-1000, 10_000),
    st.none() | st.integers(10_000, 90_000),
)
every_schedules = st.builds(
    lambda period, anchor: Schedule.of(Every(period, NIGHT + anchor)),
    st.integers(SECOND, 100_000 * SECOND),
    st.integers(-(10**12), 10**9),
)
schedules = st.one_of(cron_schedules, every_schedules)


def walk(schedule: Schedule, first: int | None, last: int) -> list[int]:
    found = []
    while first is not None and first <= last:
        found.append(first)
        first = schedule.next_after(first)
    return found


@settings(COMMON, max_examples=200)
@given(schedules, st.sampled_from(POLICIES), st.integers(0, 100_000), st.integers(0, 7200), st.integers(0, 20))
def test_what_is_owed_adds_up(schedule: Schedule, policy, outage: int, grace: int, limit: int) -> None:
    first = schedule.next_after(NIGHT)
    now = NIGHT + outage * SECOND
    result = owed(schedule, first, now, policy=policy, grace_us=grace * SECOND, catch_up_limit=limit)
    everything = walk(schedule, first, now)
    fresh = [t for t in everything if now - t <= grace * SECOND]
    missed = everything[: len(everything) - len(fresh)]
    keep = {"FIRE_NOW": 1, "SKIP": 0, "CATCH_UP": limit}[policy]
    kept = missed[len(missed) - keep :] if keep < len(missed) else missed
    assert list(result.runs) == kept + fresh
    dropped = missed[: len(missed) - len(kept)]
    if dropped:
        (skip,) = result.skips
        assert (skip.first_us, skip.last_us, skip.count) == (dropped[0], dropped[-1], len(dropped))
        assert skip.reason == {"FIRE_NOW": SUPERSEDED, "SKIP": SKIPPED, "CATCH_UP": BEYOND_LIMIT}[policy]
    else:
        assert result.skips == ()
    assert result.next_us == (schedule.next_after(now) if everything else first)
    assert result.next_us is None or result.next_us > now


@settings(COMMON, max_examples=80)
@given(schedules, st.sampled_from(POLICIES), st.integers(0, 50_000), st.integers(0, 50_000))
def test_an_edit_settles_up_to_its_commit_and_no_further(schedule: Schedule, policy, commit: int, later: int) -> None:
    first = schedule.next_after(NIGHT)
    commit_us, now = NIGHT + commit * SECOND, NIGHT + (commit + later) * SECOND
    everything = walk(schedule, first, commit_us)
    result = settle(schedule, first, commit_us, now, policy=policy, grace_us=60 * SECOND, catch_up_limit=5)
    assert len(result.runs) + sum(skip.count for skip in result.skips) == len(everything)
    assert set(result.runs) <= set(everything)
    dropped = abandon(schedule, first, commit_us, "paused")
    assert dropped.runs == ()
    assert sum(skip.count for skip in dropped.skips) == len(everything)


@settings(COMMON, max_examples=100)
@given(schedules, st.integers(-(10**12), 10**12), st.integers(0, 3 * 86_400))
def test_count_and_next_tell_the_same(schedule: Schedule, start: int, length: int) -> None:
    first = NIGHT + start
    last = first + length * SECOND
    assert schedule.count(first, last) == len(walk(schedule, schedule.next_after(first - 1), last))


@settings(COMMON, max_examples=200)
@given(schedules, st.integers(-(2**55), 2**58))
def test_next_is_strictly_after_at_any_time(schedule: Schedule, t: int) -> None:
    following = schedule.next_after(t)
    assert following is None or following > t
    if following is not None:
        assert schedule.next_after(following - 1) == following
