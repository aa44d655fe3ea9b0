"""After an outage: on-time work first, what was missed at a bounded rate, oldest first."""

from __future__ import annotations

import numpy as np
import pytest

from coordinator.backlog import Backlog
from coordinator.loaded import LoadedJobs
from coordinator.rules import Rule
from cronstream.records import Kind
from tests.properties.term.world import SECOND, SETTINGS, World
from tests.unit.coordinator.rows import hold
from tests.unit.coordinator.test_dispatcher import go_on

NOW = 1_000 * SECOND


def jobs_at(*times_us: int) -> tuple[LoadedJobs, list[int]]:
    jobs = LoadedJobs(4)
    return jobs, [hold(jobs, job_id=number + 1, next_us=at, rule=Rule(None)) for number, at in enumerate(times_us)]


def test_the_oldest_goes_first() -> None:
    jobs, slots = jobs_at(30, 10, 20)
    backlog = Backlog(jobs, 100, NOW)
    for slot in slots:
        backlog.add(slot)
    assert backlog.take(NOW, 10) == [slots[1], slots[2], slots[0]]


def test_no_more_than_the_rate_allows() -> None:
    jobs, slots = jobs_at(*range(30))
    backlog = Backlog(jobs, 10, NOW)
    for slot in slots:
        backlog.add(slot)
    taken = []
    for tick in range(21):
        some = backlog.take(NOW + tick * SECOND // 10, 100)
        backlog.spend(len(some))
        taken.append(len(some))
    assert taken[0] == 10
    assert sum(taken) == 30
    assert all(count <= 2 for count in taken[1:])


def test_a_job_that_owes_much_is_paid_for_by_those_behind_it() -> None:
    jobs, slots = jobs_at(1, 2)
    backlog = Backlog(jobs, 10, NOW)
    for slot in slots:
        backlog.add(slot)
    assert backlog.take(NOW, 1) == [slots[0]]
    backlog.spend(30)
    assert backlog.take(NOW + SECOND, 1) == []
    assert backlog.wait_seconds() == pytest.approx(1.1)
    assert backlog.take(NOW + 3 * SECOND, 1) == [slots[1]]


def test_a_job_that_moved_meanwhile_is_not_found() -> None:
    jobs, slots = jobs_at(1, 2, 3)
    backlog = Backlog(jobs, 10, NOW)
    for slot in slots:
        backlog.add(slot)
    jobs.version[slots[0]] += 1
    jobs.release(np.array(slots[1:2], np.int32))
    hold(jobs, job_id=99, next_us=5, rule=Rule(None))  # takes the slot
    assert backlog.take(NOW, 10) == [slots[2]]
    assert backlog.wait_seconds() is None


def test_after_an_outage_one_run_a_job_at_a_bounded_rate_and_nothing_due_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(1)
    world.meanwhile = world.log.faults = False
    missed = [world.insert(every_us=SECOND, misfire_grace_us=0) for _ in range(60)]
    go_on(world, 2)
    world.clock.advance(3600)
    slow = SETTINGS.model_copy(update={"catch_up_per_second": 20})
    monkeypatch.setattr("tests.properties.term.world.SETTINGS", slow)
    began = world.now_us()
    world.take_office()
    on_time = world.insert(every_us=SECOND, misfire_grace_us=60 * SECOND)
    go_on(world, 8)
    caught_up = {
        job_id: next(at for at, item in world.log.items(job_id) if at >= began and item.kind == Kind.RUN)
        for job_id in missed
    }
    assert max(caught_up.values()) - min(caught_up.values()) >= 2 * SECOND
    for job_id in missed:
        late = [item for at, item in world.log.items(job_id) if item.kind == Kind.RUN and at == caught_up[job_id]]
        assert len([item for item in late if item.scheduled_us < caught_up[job_id] - SECOND]) <= 1
    for at, item in world.log.items(on_time):
        assert at - item.scheduled_us <= SECOND
