"""Deletions of many jobs at once: nothing that is due waits for them, and none is lost."""

from __future__ import annotations

import numpy as np
import pytest

from coordinator.arrivals import JobColumns, Loaded
from coordinator.deletions import Deletion, Deletions
from coordinator.rows import job_at
from coordinator.rules import Rule
from coordinator.writer import PlanRow
from cronstream.records import Item, Kind
from cronstream.schedule import schedule_of
from tests.properties.term.world import SECOND, SETTINGS, START_US, World
from tests.unit.coordinator.test_dispatcher import WORK, go_on, reasons, runs, world

NOW = 1_000 * SECOND
__all__ = ["world"]


def deletion(job_id: int, version: int = 1) -> Deletion:
    row = PlanRow(job_id, version, version + 1, None, 9, None, True, (job_id,))
    return Deletion(Item(Kind.CANCEL, job_id, NOW), row)


def waiting(count: int, per_second: int = 10, most: int = 1000) -> Deletions:
    deletions = Deletions(per_second, NOW, most)
    deletions.add(map(deletion, range(count)))
    return deletions


def test_the_oldest_go_first_and_no_more_than_the_rate_allows() -> None:
    deletions = waiting(30)
    taken = [[one.row.job_id for one in deletions.take(NOW + tick * SECOND // 10)] for tick in range(21)]
    assert [job_id for some in taken for job_id in some] == list(range(30))
    assert [(tick, len(some)) for tick, some in enumerate(taken) if some] == [(0, 10), (10, 10), (20, 10)]
    assert deletions.wait_seconds() is None


def test_a_single_one_waits_for_no_others() -> None:
    deletions = waiting(1)
    assert deletions.wait_seconds() == 0
    assert len(deletions.take(NOW)) == 1
    deletions.add(map(deletion, range(9)))
    assert len(deletions.take(NOW)) == 9
    deletions.add([deletion(1)])
    assert deletions.take(NOW) == []
    assert deletions.wait_seconds() == pytest.approx(0.1)


def test_no_more_go_together_than_what_is_due_can_wait_for() -> None:
    deletions = waiting(3000, per_second=100_000, most=5000)
    assert [len(deletions.take(NOW)) for _ in range(4)] == [1000, 1000, 1000, 0]


def test_what_no_longer_fits_goes_at_once() -> None:
    deletions = waiting(30, most=5)
    assert [one.row.job_id for one in deletions.take(NOW)] == list(range(25))
    assert deletions.take(NOW) == []
    assert deletions.wait_seconds() == pytest.approx(0.5)


def test_a_job_that_is_read_again_is_told_as_it_was_read_last() -> None:
    deletions = waiting(3)
    deletions.forget([0, 1, 77])
    deletions.add([deletion(1, version=5)])
    assert deletions.of(np.array([0, 1, 2, 3])).tolist() == [False, True, True, False]
    assert [(one.row.job_id, one.row.expected) for one in deletions.take(NOW)] == [(2, 1), (1, 5)]


def cancels(world: World, job_ids: list[int]) -> list[int]:
    """When each was told last."""
    return [at for job_id in job_ids for at, item in world.log.items(job_id)[-1:] if item.kind == Kind.CANCEL]


def deleted(world: World, count: int) -> list[int]:
    """Jobs that have fired, and whose deletion was captured; some of them are told."""
    jobs = [world.insert(every_us=SECOND) for _ in range(count)]
    go_on(world, 6)
    assert all(len(runs(world, job_id)) >= 2 for job_id in jobs)
    for job_id in jobs:
        world.delete(job_id)
    world.capture(count)
    for part in (world.read, world.dispatch, world.write_all):
        part()
    return jobs


def test_deleted_jobs_fire_no_more_and_are_told_at_a_bounded_rate(world: World) -> None:
    kept = world.insert(every_us=SECOND)
    jobs = deleted(world, 8)
    assert len(cancels(world, jobs)) <= 2
    fired = {job_id: runs(world, job_id) for job_id in jobs}
    go_on(world, 12)
    assert {job_id: runs(world, job_id) for job_id in jobs} == fired
    told = cancels(world, jobs)
    assert len(told) == 8
    assert max(told) - min(told) >= 6 * SECOND / SETTINGS.deletions_per_second
    assert all(at - item.scheduled_us <= SECOND for at, item in world.log.items(kept) if item.kind == Kind.RUN)
    assert (world.terms, world.tables.changes, list(world.tables.schedules)) == (1, {}, [kept])


def test_what_waited_when_a_term_ended_is_told_in_the_next(world: World) -> None:
    jobs = deleted(world, 8)
    assert len(world.tables.changes) >= 6
    for _ in range(3):
        world.take_office()
        go_on(world, 1)
    go_on(world, 9)
    assert len(cancels(world, jobs)) == 8
    assert not world.tables.changes
    for job_id in jobs:
        world.check_job(job_id)


def test_a_row_that_was_read_before_the_deletion_is_not_taken_in(world: World) -> None:
    job_id = deleted(world, 4)[-1]
    row, fired = world.tables.schedules[job_id], runs(world, job_id)
    assert row.next_us is not None
    job = job_at(job_id, row.next_us, row.version, Rule(schedule_of(every_us=SECOND, anchor_us=START_US)), WORK)
    world.mailbox.put(Loaded(JobColumns.of([job]), 0))
    go_on(world, 2)
    assert runs(world, job_id) == fired


def test_a_deletion_whose_row_was_moved_meanwhile_is_told_and_closed(world: World) -> None:
    jobs = deleted(world, 4)
    world.tables.schedules[jobs[-1]].version += 5
    go_on(world, 9)
    assert len(cancels(world, jobs)) == 4
    assert (world.terms, world.tables.changes, world.tables.schedules) == (1, {}, {})


def test_what_deleted_jobs_owed_is_recorded_at_once(world: World) -> None:
    jobs = [world.insert(every_us=SECOND, misfire_policy="SKIP", misfire_grace_us=0) for _ in range(4)]
    go_on(world, 3)
    world.clock.advance(3)
    for job_id in jobs:
        world.delete(job_id)
    world.capture(4)
    world.read()
    world.dispatch()
    assert [reasons(world, job_id)[-1:] for job_id in jobs] == [["deleted"]] * 4
    assert len(cancels(world, jobs)) == 4
