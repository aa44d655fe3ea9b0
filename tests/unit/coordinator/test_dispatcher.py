"""The dispatcher among real neighbours (tests/properties/term/world.py): one bad job harms no other."""

from __future__ import annotations

import pytest

from coordinator.arrivals import JobColumns, Loaded
from coordinator.rows import job_at
from coordinator.rules import Rule
from cronstream.bodies import Policy, Work, pack, skip_of
from cronstream.records import Kind
from tests.properties.term.tables import ScheduleRow
from tests.properties.term.world import SECOND, START_US, World

WORK = pack(Work("t", "n", "log", None, Policy()))


class Breaks:
    """A schedule that raises from its n-th question on."""

    def __init__(self, good_answers: int) -> None:
        self.left = good_answers

    def next_after(self, t_us: int) -> int:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("no such month")
        return t_us + 1


@pytest.fixture
def world() -> World:
    world = World(1)
    world.meanwhile = world.log.faults = False
    return world


def go_on(world: World, seconds: int) -> None:
    for _ in range(seconds * 2):
        world.clock.advance(0.5)
        world.capture(9)
        for part in (world.read, world.dispatch, world.write_all):
            part()


def runs(world: World, job_id: int) -> list[int]:
    return [item.scheduled_us for _, item in world.log.items(job_id) if item.kind == Kind.RUN]


def reasons(world: World, job_id: int) -> list[str]:
    return [skip_of(item.body).reason for _, item in world.log.items(job_id) if item.kind == Kind.SKIP]


@pytest.mark.parametrize(("good_answers", "grace_us", "ran"), [(0, SECOND, 0), (1, 60 * SECOND, 1), (1, 0, 0)])
def test_a_job_whose_times_cannot_be_computed_is_set_aside_alone(
    world: World, good_answers: int, grace_us: int, ran: int
) -> None:
    sound = world.insert(every_us=SECOND)
    go_on(world, 3)
    at = world.now_us() - SECOND
    world.tables.schedules[77] = ScheduleRow(at, 4, 1, None)
    job = job_at(77, at, 4, Rule(Breaks(good_answers), grace_us=grace_us), WORK)
    world.mailbox.put(Loaded(JobColumns.of([job]), 0))
    go_on(world, 3)
    assert reasons(world, 77) == ["invalid: no such month"]
    assert (len(runs(world, 77)), world.tables.schedules[77].next_us) == (ran, None)
    assert len(runs(world, sound)) >= 5
    assert world.terms == 1


def test_a_definition_that_this_version_cannot_read_is_recorded_and_not_just_logged(world: World) -> None:
    job_id = world.insert(every_us=SECOND)
    go_on(world, 2)
    world.write_all()
    world.tables.definitions[job_id]["every_us"] = 1  # no edit: say, an upgrade reads it otherwise
    world.take_office()
    go_on(world, 2)
    assert "invalid: every" in reasons(world, job_id)[-1]
    assert world.tables.schedules[job_id].next_us is None


def test_an_edit_that_cannot_be_planned_is_closed_and_recorded(world: World) -> None:
    bad, good = world.insert(every_us=SECOND), world.insert(every_us=SECOND)
    del world.tables.definitions[bad]["handler"]
    go_on(world, 3)
    assert (reasons(world, bad), runs(world, bad)) == (["invalid: KeyError('handler')"], [])
    assert len(runs(world, good)) >= 2
    assert (world.tables.changes, world.terms) == ({}, 1)
    world.edit(bad, handler="log")
    go_on(world, 3)
    assert len(runs(world, bad)) >= 2


def test_an_edit_right_after_the_insert_keeps_the_anchor(world: World) -> None:
    """The row with the anchor was not written yet when the second edit was read."""
    job_id = world.insert(every_us=3 * SECOND)
    world.capture(1)
    world.read()
    world.dispatch()
    world.edit(job_id, handler="http")
    world.capture(1)
    world.read()
    world.dispatch()
    go_on(world, 7)
    assert runs(world, job_id) == [START_US + 3 * SECOND, START_US + 6 * SECOND]


def test_nothing_is_armed_before_its_plan_is_written(world: World) -> None:
    """A successor could not tell the new schedule's triggers from the old one's."""
    job_id = world.insert(every_us=SECOND)
    world.capture(1)
    world.read()
    world.write_all()
    world.edit(job_id, every_us=2 * SECOND)
    world.capture(1)
    world.read()
    world.dispatch()
    world.clock.advance(5)
    world.dispatch()
    assert runs(world, job_id) == []
    world.take_office()
    world.settle()
    world.check()


def test_rows_that_somebody_else_moved_are_read_again(world: World) -> None:
    job_id = world.insert(every_us=SECOND)
    go_on(world, 3)
    world.tables.schedules[job_id].version += 5
    before = len(runs(world, job_id))
    go_on(world, 5)
    assert len(runs(world, job_id)) >= before + 4
    assert world.tables.schedules[job_id].next_us == runs(world, job_id)[-1] + SECOND


def test_the_lag_of_every_edit_counts(world: World) -> None:
    world.insert(every_us=SECOND)
    world.clock.advance(0.5)
    go_on(world, 1)
    (p99,) = world.dispatcher.figures.capture_lag.quantiles_ms(world.now_us() // SECOND, (0.99,))
    assert p99 is not None
    assert p99 >= 500
