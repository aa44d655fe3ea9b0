"""Plans made with other time zone data: asked anew, near and far; past times stay owed as planned."""

from __future__ import annotations

import pytest

from coordinator.zone_data import is_older, lower_bound
from cronstream.clock import HOUR, SECOND
from cronstream.records import Kind
from cronstream.schedule import TZDATA_VERSION, schedule_of
from tests.properties.term.world import START_US, World
from tests.unit.coordinator.test_dispatcher import go_on

DAILY = {"cron": "0 9 * * *", "timezone": "America/Vancouver"}


@pytest.mark.parametrize(
    ("version", "than", "older"),
    [
        ("2025b", "2026f", True),
        ("2026f", "2026f", False),
        ("2026g", "2026f", False),
        ("2026z", "2026za", True),
        ("2026f", None, False),
        ("odd", "2026f", True),
    ],
)
def test_releases_are_ordered_by_year_and_letter(version: str, than: str | None, older: bool) -> None:
    assert is_older(version, than) is older


def test_a_future_time_of_other_data_says_only_that_nothing_is_owed_yet() -> None:
    assert lower_bound(100, TZDATA_VERSION, 10) == 100
    assert lower_bound(100, "2025b", 10) == 11
    assert lower_bound(5, "2025b", 10) == 5
    assert lower_bound(100, None, 10) == 11


@pytest.fixture
def world() -> World:
    world = World(1)
    world.meanwhile = world.log.faults = False
    return world


def as_if_planned_an_hour_late(world: World, job_id: int) -> int:
    """The row as another release of the data would have left it; returns the right time."""
    row = world.tables.schedules[job_id]
    right = schedule_of(**DAILY).next_after(world.now_us())
    assert right is not None
    assert row.next_us == right
    row.next_us, row.tzdata = right + HOUR, "2025b"
    world.tables.tzdata_planned = "2025b"
    return right


def test_a_job_beyond_the_horizon_is_planned_anew_without_an_edit(world: World) -> None:
    job_id = world.insert(**DAILY)
    go_on(world, 2)
    right = as_if_planned_an_hour_late(world, job_id)
    world.take_office()
    go_on(world, 2)
    row = world.tables.schedules[job_id]
    assert (row.next_us, row.tzdata) == (right, TZDATA_VERSION)
    assert world.tables.tzdata_planned == TZDATA_VERSION


def test_a_job_that_is_due_earlier_than_its_row_says_fires_then_and_only_then(world: World) -> None:
    job_id = world.insert(**DAILY)
    go_on(world, 2)
    right = as_if_planned_an_hour_late(world, job_id)
    world.clock.advance((right - world.now_us()) / SECOND - 3)
    world.take_office()
    go_on(world, 6)
    assert [item.scheduled_us for _, item in world.log.items(job_id) if item.kind == Kind.RUN] == [right]
    world.clock.advance(3600)
    world.take_office()
    go_on(world, 2)
    assert [item.scheduled_us for _, item in world.log.items(job_id) if item.kind == Kind.RUN] == [right]


def test_a_time_that_has_passed_is_owed_as_it_was_planned(world: World) -> None:
    job_id = world.insert(every_us=24 * HOUR, anchor_us=START_US + 3 * SECOND)
    go_on(world, 1)
    row = world.tables.schedules[job_id]
    row.tzdata = "2025b"
    world.tables.tzdata_planned = "2025b"
    due = row.next_us
    world.clock.advance(10)
    world.take_office()
    go_on(world, 1)
    assert [item.scheduled_us for _, item in world.log.items(job_id) if item.kind == Kind.RUN] == [due]
