"""Lookahead against packing everything when it is due: the same items, each once, as the jobs are now."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from coordinator.ahead import Ahead
from coordinator.arrivals import Job, JobColumns
from coordinator.loaded import LoadedJobs
from coordinator.rules import rule_of
from coordinator.wheel import Wheel
from tests.unit.coordinator.rows import SECOND, columns

START_US = 1_800_000_000_000_000
RULE = rule_of(columns(every_us=SECOND), START_US)
# A few instants that many share, so that some are packed ahead, and some apart.
LATER = st.one_of(st.sampled_from([100_000, 1_000_000, 1_100_000, 3_000_000, 20_000_000]), st.integers(1, 30_000_000))


class AheadChangesNothing(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.now = START_US
        self.jobs = LoadedJobs(2, capacity=2)
        self.wheel = Wheel(self.now)
        self.ahead = Ahead(self.jobs, self.wheel, 7, ahead_us=1_000_000, most=40, alike=3)
        self.next_id = 1
        self.bodies: dict[int, bytes] = {}

    @rule(later=LATER, count=st.integers(1, 12))
    def load(self, later: int, count: int) -> None:
        jobs = []
        for _ in range(count):
            self.bodies[self.next_id] = f"body of {self.next_id}".encode()
            jobs.append(Job(self.next_id, self.now + later, 1, RULE, self.bodies[self.next_id]))
            self.next_id += 1
        self._hold(jobs)

    @rule(which=st.integers(0, 10**6), later=LATER)
    def edit(self, which: int, later: int) -> None:
        if not self.bodies:
            return
        job_id = sorted(self.bodies)[which % len(self.bodies)]
        self._let_go(job_id)
        self.bodies[job_id] += b", edited"
        self._hold([Job(job_id, self.now + later, 2, RULE, self.bodies[job_id])])

    @rule(which=st.integers(0, 10**6))
    def delete(self, which: int) -> None:
        if self.bodies:
            job_id = sorted(self.bodies)[which % len(self.bodies)]
            self._let_go(job_id)
            del self.bodies[job_id]

    @rule(times=st.integers(1, 20))
    def look_ahead(self, times: int) -> None:
        for _ in range(times):
            self.ahead.step(self.now)

    @rule(later=LATER, again=LATER)
    def fire(self, later: int, again: int) -> None:
        """Everything due is published as it stands now, and armed again."""
        self.now += later
        due = self.wheel.pop_due(self.now)
        ready, rest = self.ahead.take(due, self.now)
        instants = self.jobs.next_us[due].tolist()
        wanted = dict(zip(self.jobs.job_id[due].tolist(), instants, strict=True))
        found = [item for packed in ready for item in packed.batch.items()]
        assert all(packed.batch.token == 7 for packed in ready)
        assert sorted(np.concatenate([rest, *(packed.slots for packed in ready)]).tolist()) == sorted(due.tolist())
        for item in found:
            assert (item.scheduled_us, item.body) == (wanted[item.job_id], self.bodies[item.job_id])
        if due.size:
            self.jobs.next_us[due] = self.now + again
            self.wheel.arm_many(due, np.full(len(due), self.now + again))

    def _hold(self, jobs: list[Job]) -> None:
        columns = JobColumns.of(jobs)
        self.wheel.arm_many(self.jobs.hold(columns), columns.next_us)

    def _let_go(self, job_id: int) -> None:
        (slot,) = self.jobs.slots_of(np.array([job_id])).tolist()
        self.wheel.cancel(slot)
        self.ahead.forget(slot)
        self.jobs.release(np.array([slot], np.int32))


TestAheadChangesNothing = AheadChangesNothing.TestCase
TestAheadChangesNothing.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


def test_a_herd_is_packed_before_it_is_due() -> None:
    jobs, wheel = LoadedJobs(2), Wheel(START_US)
    held = JobColumns.of([Job(number, START_US + SECOND, 1, RULE, b"body") for number in range(10_000)])
    wheel.arm_many(jobs.hold(held), held.next_us)
    ahead = Ahead(jobs, wheel, 1, ahead_us=SECOND, most=100_000)
    while ahead.step(START_US):
        pass
    due = wheel.pop_due(START_US + SECOND)
    ready, rest = ahead.take(due, START_US + SECOND)
    assert (sum(len(packed.slots) for packed in ready), rest.size, len(ahead)) == (10_000, 0, 0)
