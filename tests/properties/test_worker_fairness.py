"""The fair queue against a naive model: caps hold, lines are first come first served, no slot idles needlessly."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from workers.fairness import FairQueue


@dataclass(frozen=True)
class Entry:
    tenant: str
    job_id: int
    number: int


class FairQueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[Entry] = FairQueue(8)
        self.waiting: list[Entry] = []
        self.running: list[Entry] = []
        self.number = 0

    def may_run(self, entry: Entry) -> bool:
        jobs = Counter(other.job_id for other in self.running)
        tenants = Counter(other.tenant for other in self.running)
        return jobs[entry.job_id] < self.queue.job_cap and tenants[entry.tenant] < self.queue.tenant_cap

    @rule(job=st.integers(0, 7))
    def put(self, job: int) -> None:
        entry = Entry("abc"[job % 3], job, self.number)
        self.number += 1
        self.queue.put(entry)
        self.waiting.append(entry)

    @rule()
    def take(self) -> None:
        entry = self.queue.take()
        if entry is None:
            assert len(self.running) == 8 or not any(self.may_run(other) for other in self.waiting)
            return
        assert self.may_run(entry)
        assert entry == next(other for other in self.waiting if other.job_id == entry.job_id)
        self.waiting.remove(entry)
        self.running.append(entry)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 7))
    def done(self, which: int) -> None:
        self.queue.done(self.running.pop(which % len(self.running)))

    @rule(odd=st.integers(0, 3))
    def remove(self, odd: int) -> None:
        removed = self.queue.remove(lambda entry: entry.number % 4 == odd)
        gone = [entry for entry in self.waiting if entry.number % 4 == odd]
        assert sorted(removed, key=lambda entry: entry.number) == gone
        self.waiting = [entry for entry in self.waiting if entry not in gone]

    @invariant()
    def counts_agree(self) -> None:
        assert self.queue.waiting == len(self.waiting)
        assert self.queue.running == len(self.running) <= 8


TestFairQueue = FairQueueMachine.TestCase
TestFairQueue.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
