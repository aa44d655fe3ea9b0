"""From the columns of a definition to its scheduled times: bounds, kinds, sharing, refusals."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from cronstream.schedule import Schedule, ScheduleError, next_for_all, schedule_of
from cronstream.schedule.instants import parse_instant

SECOND = 1_000_000
HOUR = 3600 * SECOND
NOON = parse_instant("t", "2026-11-29T12:00:00Z")


def take(schedule: Schedule, after: int, n: int) -> list[int]:
    found, t = [], after
    while len(found) < n and (t := schedule.next_after(t)) is not None:
        found.append(t)
    return found


def test_both_bounds_are_inclusive() -> None:
    schedule = schedule_of(cron="0 * * * *", starts_at_us=NOON, ends_at_us=NOON + 2 * HOUR)
    assert take(schedule, 0, 9) == [NOON, NOON + HOUR, NOON + 2 * HOUR]
    assert schedule.count(0, 2 * NOON) == 3
    inside = schedule_of(cron="0 * * * *", starts_at_us=NOON + 1, ends_at_us=NOON + 2 * HOUR - 1)
    assert take(inside, 0, 9) == [NOON + HOUR]


def test_bounds_hold_for_every_and_once_and_against_the_spread_time() -> None:
    every = schedule_of(every_us=HOUR, anchor_us=NOON - 30 * 60 * SECOND, starts_at_us=NOON, ends_at_us=NOON + HOUR)
    assert take(every, 0, 9) == [NOON + HOUR // 2]
    assert schedule_of(run_at_us=NOON, ends_at_us=NOON).next_after(0) == NOON
    spread = schedule_of(cron="0 * * * *", spread_seconds=3600, tenant="t", name="n", ends_at_us=NOON + HOUR)
    offset = spread.offset_us
    assert 0 < offset < HOUR
    assert take(spread, NOON - 1, 9) == [NOON + offset]


def test_spread_and_bounds_hold_for_every_kind() -> None:
    """A stable offset, the same for every kind; the bounds are held against the time with it."""
    kinds = ({"cron": "0 * * * *"}, {"every_us": HOUR, "anchor_us": NOON}, {"run_at_us": NOON})
    job = {"spread_seconds": 3600, "tenant": "t", "name": "n"}
    (offset,) = {schedule_of(**kind, **job).offset_us for kind in kinds}
    assert 0 < offset < HOUR
    for kind in kinds:
        moved = NOON + offset
        assert take(schedule_of(**kind, **job), NOON - 1, 1) == [moved]
        assert take(schedule_of(**kind, **job, starts_at_us=moved, ends_at_us=moved), 0, 9) == [moved]
        for bound in ({"starts_at_us": moved + 1}, {"ends_at_us": moved - 1}):
            try:
                bounded = schedule_of(**kind, **job, **bound)
            except ScheduleError:
                assert kind.keys() != {"cron"}
                continue
            assert moved not in take(bounded, NOON - 1, 2)


def test_an_interval_is_absolute_time_over_changes_of_the_clock() -> None:
    schedule = schedule_of(every_us=24 * HOUR, anchor_us=NOON, timezone="Europe/Berlin")
    year = take(schedule, NOON, 366)
    assert {later - earlier for earlier, later in pairwise(year)} == {24 * HOUR}


def test_kinds_and_the_anchor() -> None:
    assert schedule_of(cron="@daily").kind == "cron"
    assert schedule_of(every_us=HOUR, anchor_us=NOON).kind == "every"
    assert schedule_of(run_at_us=NOON).kind == "once"
    assert schedule_of(every_us=HOUR, starts_at_us=NOON).next_after(0) == NOON
    assert schedule_of(every_us=HOUR, anchor_us=NOON).next_after(NOON) == NOON + HOUR


def test_equal_columns_share_one_object() -> None:
    columns = {"cron": "0 9 * * *", "timezone": "Europe/Berlin"}
    assert schedule_of(**columns) is schedule_of(**columns, tenant="t", name="other")
    assert schedule_of(**columns, ends_at_us=10**18) is schedule_of(**columns, ends_at_us=10**18)
    assert schedule_of(every_us=HOUR, anchor_us=5) == schedule_of(every_us=HOUR, anchor_us=5)
    assert schedule_of(every_us=HOUR, anchor_us=5) != schedule_of(every_us=HOUR, anchor_us=6)


def test_a_burst_asks_each_distinct_schedule_once() -> None:
    schedules = [schedule_of(cron=f"{n % 7} * * * *") for n in range(1000)]
    assert next_for_all(schedules, NOON) == [schedule.next_after(NOON) for schedule in schedules]


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        ({}, "schedule"),
        ({"cron": "@daily", "run_at_us": 5}, "schedule"),
        ({"every_us": HOUR, "run_at_us": 5}, "schedule"),
        ({"every_us": HOUR}, "every"),
        ({"every_us": 999_999, "anchor_us": 0}, "every"),
        ({"every_us": 10**17, "anchor_us": 0}, "every"),
        ({"run_at_us": 5, "timezone": "Mars/Base"}, "timezone"),
        ({"run_at_us": 5, "dst_gap": "x"}, "dst_gap"),
        ({"run_at_us": 5, "dst_overlap": "x"}, "dst_overlap"),
        ({"run_at_us": 5, "ends_at_us": 4}, "run_at"),
        ({"run_at_us": 5, "starts_at_us": 6}, "run_at"),
        ({"cron": "0 0 1 1 *", "starts_at_us": NOON, "ends_at_us": NOON + HOUR}, "ends_at"),
        ({"every_us": HOUR, "anchor_us": NOON, "ends_at_us": NOON - 1}, "ends_at"),
        ({"cron": "@daily", "starts_at_us": 6, "ends_at_us": 5}, "ends_at"),
        ({"cron": "@daily", "spread_seconds": -1}, "spread_seconds"),
        ({"cron": "@daily", "spread_seconds": 86_401}, "spread_seconds"),
        ({"cron": "nonsense"}, "cron"),
    ],
)
def test_columns_that_mean_nothing_are_refused_by_name(columns: dict, field: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        schedule_of(**columns)
    assert caught.value.field == field


def test_bounds_without_a_time_are_refused_readably() -> None:
    """It is the reason in history where SQL could not tell."""
    with pytest.raises(ScheduleError) as caught:
        schedule_of(cron="@daily", starts_at_us=NOON + HOUR, ends_at_us=NOON + 2 * HOUR)
    assert re.fullmatch(
        r'ends_at: "[-0-9]+T14:00:00Z" is not allowed; '
        r"allowed: [-0-9]+T00:00:00Z or later, the first scheduled time from starts_at [-0-9]+T13:00:00Z on",
        str(caught.value),
    )
    with pytest.raises(ScheduleError, match=r"allowed: an instant up to 1970-01-01T00:00:00Z$"):
        schedule_of(run_at_us=5, ends_at_us=0)


def test_searches_end() -> None:
    assert schedule_of(cron="*/15 2 * 3 SUN#2", timezone="America/New_York").next_after(NOON) is None
    leap_monday = schedule_of(cron="0 0 */28 2 MON#5")
    assert len(take(leap_monday, parse_instant("t", "2072-03-01T00:00:00Z"), 2)) == 2  # over 2100: forty years
    assert schedule_of(cron="* * * * *").next_after(parse_instant("t", "9999-06-01T00:00:00Z")) is None
    assert schedule_of(every_us=HOUR, anchor_us=0).next_after(10**19) is None
