"""What /stats counts: each thing once, in one place, and the runs under way as they are."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from cronstream.clock import MINUTE, FakeClock
from cronstream.dead_letters import Record
from cronstream.records import Batch, Item, Kind
from cronstream.topics import Topics
from streams.index import JobIndex
from streams.running import ROWS_AT_ONCE, Running
from streams.settlement import Tables
from streams.stages import COUNTERS, Admitting, Effects, Settling
from streams.status import KEPT_RUNS, JobStatus, key_of
from tests.unit.streams.making import NOON, cancel, outcome, outcomes, run, settle, skip, triggers

TOPICS = Topics()


class Both:
    """Admission and settlement one after the other, as a trigger passes them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.admitting = Admitting(TOPICS, 600, [], lambda _: False, FakeClock())
        self.rows: dict[bytes, bytes] = {}
        self.settling = Settling(TOPICS, self.rows.get, {}.get, 100)
        self.offset = 0

    def publish(self, *items: Item) -> None:
        admitted = self.take(self.admitting, TOPICS.triggers, triggers(items).encode())
        for send in admitted.sends:
            if send.topic == TOPICS.outcomes:
                self.settle(send.value)

    def report(self, *items: Item) -> Effects:
        return self.settle(outcomes(items).encode())

    def settle(self, value: bytes | None) -> Effects:
        effects = self.take(self.settling, TOPICS.outcomes, value)
        self.rows |= {key: row for key, row in effects.rows.items() if row is not None}
        return effects

    def take(self, stage: Admitting | Settling, topic: str, value: bytes | None) -> Effects:
        self.offset += 1
        effects = stage.decide([Record(topic, 0, self.offset, None, value, [])])
        self.counts.update(effects.counts)
        return effects


def test_skips_count_once_by_the_times_they_stand_for_and_cancels_are_no_skips() -> None:
    both = Both()
    both.publish(skip(1), skip(2, count=7), run(3), cancel(4), cancel(5))
    both.publish(skip(1), cancel(4))
    assert {name: count for name, count in both.counts.items() if count} == {
        "skipped": 8,
        "jobs_deleted": 2,
        "admitted": 1,
    }


def test_every_count_has_a_name_that_is_shown() -> None:
    both = Both()
    both.publish(run(1), run(1), skip(2), cancel(3))
    both.report(*(outcome(kind, 9, NOON + kind * MINUTE) for kind in Kind if kind is Kind.STARTED or kind.is_end))
    both.settle(b"not a batch")
    assert set(both.counts) <= set(COUNTERS)


def test_the_changes_of_running_add_up_to_what_the_statuses_keep() -> None:
    both = Both()
    running = 0
    starts = [outcome(Kind.STARTED, 1, NOON + minute * MINUTE) for minute in range(KEPT_RUNS + 5)]
    ends = [outcome(Kind.SUCCEEDED, 1, NOON + minute * MINUTE) for minute in range(KEPT_RUNS + 5)]
    for item in [*starts, *ends, ends[-1], outcome(Kind.STARTED, 2)]:
        running += both.report(item).running
        assert running == sum(JobStatus.decode(row).running for row in both.rows.values())
    assert running == 1


def statuses(batch: Batch) -> list[tuple[bytes, bytes]]:
    settled = settle(Tables(lambda _: None, lambda _: None, 100), batch, 0).statuses
    return [(key_of(job_id), status.encode()) for job_id, status in settled.items()]


def test_a_restart_counts_what_runs_from_the_table() -> None:
    async def scenario() -> None:
        running = Running(FakeClock())
        assert running.total({}) == 0
        many = [outcome(Kind.STARTED, job) for job in range(1, 2 * ROWS_AT_ONCE)]
        index = JobIndex()
        running.begin(0, iter(statuses(outcomes(many))), index)
        running.begin(1, iter(statuses(outcomes([outcome(Kind.STARTED, 1), outcome(Kind.FAILED, 2)]))), JobIndex())
        assert not running.is_counted(0)
        assert running.total({0: 0, 1: 0}) is None
        while running.total({0: 0, 1: 0}) is None:
            await asyncio.wait_for(asyncio.gather(*running._tasks), 10)
        assert running.is_counted(0)
        assert index.find("acme", "running", 0, 2) == [1, 2]
        assert len(index) == len(many)
        assert running.total({0: -3, 1: 1}) == len(many) - 3 + 1 + 1
        await running.stop()
        assert running.total({}) == 0
        assert running.total({0: 0}) is None

    asyncio.run(scenario())


def test_a_count_that_is_stopped_lets_go_of_the_table() -> None:
    closed = []

    def rows() -> object:
        try:
            yield from [(key_of(1), JobStatus().encode())] * (ROWS_AT_ONCE + 1)
            pytest.fail("read to the end")
        finally:
            closed.append(True)

    async def scenario() -> None:
        running = Running(FakeClock())
        running.begin(0, rows(), JobIndex())  # type: ignore[arg-type]
        await asyncio.wait(running._tasks, timeout=0)
        await running.stop()
        assert closed == [True]

    asyncio.run(scenario())
