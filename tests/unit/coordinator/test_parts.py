"""The small pure parts: columns of jobs, batches, rules, audit, tail, lateness, what rows will say."""

from __future__ import annotations

import numpy as np
import pytest

from coordinator.arrivals import Job, JobColumns
from coordinator.audit import OpenChange, missed, overdue
from coordinator.batching import item_batches, pack
from coordinator.lateness import Lateness
from coordinator.loaded import LoadedJobs
from coordinator.rows import jobs_of
from coordinator.rules import Rule, rule_of, work_of_row
from coordinator.slots import ABSENT
from coordinator.tail import Tail
from coordinator.unwritten import Row, Unwritten
from coordinator.writer import NONE
from cronstream.bodies import work_of
from cronstream.records import MAX_BYTES, MAX_ITEMS, Batch, Item, Kind
from cronstream.schedule import ScheduleError
from cronstream.topics import partition_of
from tests.unit.coordinator.rows import SECOND, columns, hold

RULE = rule_of(columns(every_us=SECOND), 0)


def held(count: int, size: int = 10, partitions: int = 2) -> tuple[LoadedJobs, np.ndarray]:
    jobs = LoadedJobs(partitions, capacity=4)
    slots = [hold(jobs, job_id=n, next_us=n, rule=RULE, work=bytes(size)) for n in range(1, count + 1)]
    return jobs, np.array(slots, np.int32)


def test_slots_are_reused_and_columns_grow() -> None:
    jobs, slots = held(3000)
    assert len(jobs) == 3000
    jobs.release(slots[7:9])
    assert jobs.slots_of(np.array([8, 9, 10])).tolist() == [ABSENT, ABSENT, slots[9]]
    assert len(jobs) == 2998
    assert hold(jobs, job_id=9999, next_us=1, version=4, rule=RULE, work=b"w") == slots[8]
    assert (jobs.version[slots[8]], jobs.work[slots[8]]) == (4, b"w")
    assert jobs.slots_of(np.array([9999])).tolist() == [slots[8]]
    more = jobs.hold(JobColumns.of([job(20_000 + number) for number in range(3000)]))
    assert sorted({*slots.tolist(), *more.tolist()}) == list(range(5999))
    assert jobs.slots_of(np.array([20_000, 22_999, 8])).tolist() == [more[0], more[-1], ABSENT]
    assert jobs.job_id[slots[2999]] == 3000


def test_the_rule_of_a_plain_interval_goes_on_from_the_armed_time() -> None:
    jobs = LoadedJobs(2)
    slot = hold(jobs, next_us=7 * SECOND, rule=rule_of(columns(every_us=3 * SECOND, misfire_policy="SKIP"), SECOND))
    assert jobs.rule(slot).misfire_policy == "SKIP"
    assert [jobs.rule(slot).next_after(at * SECOND) for at in (6, 7, 15)] == [7 * SECOND, 10 * SECOND, 16 * SECOND]
    jobs.next_us[slot] = 10 * SECOND
    assert jobs.rule(slot).owed(10 * SECOND, 10 * SECOND).next_us == 13 * SECOND


def test_batches_hold_one_partition_500_items_and_every_slot_once() -> None:
    jobs, slots = held(1700)
    batches = [packed.published(4) for packed in pack(jobs, slots, token=3)]
    assert np.concatenate([packed.slots for packed in pack(jobs, slots, token=3)]).size == len(slots)
    assert all(0 < len(batch) <= MAX_ITEMS for _, batch in batches)
    assert [partition for partition, _ in batches] == sorted(partition for partition, _ in batches)
    for partition, batch in batches:
        assert {partition_of(job_id, 2) for job_id in batch.job_id.tolist()} == {partition}
    found = [item for _, batch in batches for item in Batch.decode(batch.encode()).items()]
    assert sorted(item.job_id for item in found) == list(range(1, 1701))
    assert all((item.scheduled_us, len(item.body)) == (item.job_id, 10) for item in found)


def test_batches_hold_256_kib_but_for_a_single_larger_body() -> None:
    jobs, slots = held(20, 60_000, partitions=1)
    assert [len(batch) for _, _, batch in pack(jobs, slots, token=1)] == [4] * 5
    jobs, slots = held(2, MAX_BYTES + 1, partitions=1)
    assert [len(batch) for _, _, batch in pack(jobs, slots, token=1)] == [1, 1]


def test_nothing_due_on_time_is_no_batch() -> None:
    """All that was due had been missed: the term ended, and the next one as well."""
    jobs, slots = held(3)
    assert list(pack(jobs, slots[:0], token=1)) == []


def test_single_items_keep_the_order_of_their_job() -> None:
    items = [Item(Kind.RUN, job_id, time) for time in (1, 2, 3) for job_id in (1, 2, 3, 4)]
    batches = list(item_batches(items, partitions=3, token=1, published_at=1))
    for job_id in (1, 2, 3, 4):
        found = [item for _, batch in batches for item in batch.items() if item.job_id == job_id]
        assert [item.scheduled_us for item in found] == [1, 2, 3]


def test_a_paused_definition_has_no_times_and_differs_from_one_that_runs() -> None:
    paused = rule_of(columns(cron="* * * * *", enabled=False), None)
    assert paused.next_after(0) is None
    assert not paused.same_times(rule_of(columns(cron="* * * * *"), None))
    assert not paused.same_times(None)
    assert RULE.same_times(rule_of(columns(every_us=SECOND, misfire_policy="SKIP"), 0))


def test_an_own_anchor_goes_before_the_stored_one() -> None:
    assert rule_of(columns(every_us=10 * SECOND, anchor_us=3), 5).next_after(0) == 3
    with pytest.raises(ScheduleError, match="anchor"):
        rule_of(columns(every_us=SECOND), None)


def test_null_and_json_null_payloads_are_kept_apart() -> None:
    assert work_of_row(columns(payload=None)).payload is None
    assert work_of_row(columns(payload="null")).payload == b"null"


def test_a_stored_schedule_that_cannot_be_read_is_a_job_to_be_set_aside() -> None:
    row = columns(cron="no such thing", job_id=4, next_us=1, version=2, stored_anchor_us=None, tzdata=None)
    (job,) = jobs_of([row], 1)
    assert job.error is not None
    assert job.rule == Rule(None)
    assert work_of(job.work).name == "job"


CHANGE = OpenChange(1, 1, 100 * SECOND)


@pytest.mark.parametrize(("reached", "expected"), [(None, False), (99, False), (100.5, False), (101.5, True)])
def test_what_the_feed_has_passed_was_missed(reached: float | None, expected: bool) -> None:
    found = missed([CHANGE], None if reached is None else int(reached * SECOND))
    assert found == ([CHANGE] if expected else [])


@pytest.mark.parametrize(
    ("heard", "now", "expected"),
    [
        (None, 105, False),  # nothing yet, and not long
        (None, 111, True),
        (104, 105, False),
        (100, 111, True),  # silent for long
        (149, 150, False),  # it still brings the edits of a long transaction
        (139, 150, True),
        (99, 110, False),  # silent for long, but the edit is young
    ],
)
def test_what_waits_for_a_silent_feed_is_overdue(heard: float | None, now: float, expected: bool) -> None:
    heard_us = None if heard is None else int(heard * SECOND)
    assert overdue([CHANGE], heard_us, int(now * SECOND), 10 * SECOND) == ([CHANGE] if expected else [])


def test_the_tail_knows_each_jobs_newest_time_of_its_own_and_every_run_of_requests() -> None:
    items = [
        Item(Kind.RUN, 1, 10),
        Item(Kind.SKIP, 1, 30),
        Item(Kind.RUN, 1, 20),
        Item(Kind.RUN, 2, -5),
        Item(Kind.RUN, 3, 99, request_id=8),
        Item(Kind.RUN_QUEUED, 1, 40, attempt=6),
        Item(Kind.CANCEL, 4, 50),
    ]
    tail = Tail()
    tail.add(Batch.of(items, token=1, published_at=1))
    assert tail.newest == {1: 30, 2: -5}
    assert tail.requested == {(3, 99, 8, 1), (1, 40, 0, 6)}


def test_lateness_forgets_after_a_minute_and_is_right_to_a_twentieth() -> None:
    lateness = Lateness()
    assert lateness.quantiles_ms(0, (0.5,)) == [None]
    lateness.record(1, np.array([1000] * 99 + [500_000]))
    lateness.record(1, np.empty(0, np.int64))
    p50, p999 = lateness.quantiles_ms(30, (0.5, 0.999))
    assert p50 is not None
    assert 1 <= p50 <= 1.06
    assert p999 is not None
    assert 500 <= p999 <= 530
    assert lateness.quantiles_ms(61, (0.5,)) == [None]


def job(job_id: int) -> Job:
    return Job(job_id, 100, 1, RULE, b"")


def test_rows_count_again_once_they_were_read_after_the_write() -> None:
    unwritten = Unwritten()
    unwritten.left(1, Row(4, 10, 2))
    unwritten.left(2, Row(5, NONE, 7))
    unwritten.left(1, Row(6, 20, 3))
    unwritten.retire(5)
    assert (unwritten.row(1), 2 in unwritten) == (Row(6, 20, 3), False)
    unwritten.retire(6)
    assert unwritten.row(1) is None


def test_a_planned_job_is_taken_when_its_own_plan_is_written() -> None:
    unwritten = Unwritten()
    unwritten.planned(1, Row(3, 100, 1), 55, job(1))
    unwritten.planned(2, Row(3, 100, 1), None, job(2))
    unwritten.planned(1, Row(4, 100, 2), 66, job(1))
    assert unwritten.take_written(2) == []
    assert [taken.job_id for taken in unwritten.take_written(3)] == [2]
    assert unwritten.anchor(1, 11) == 66
    unwritten.forget(1)
    assert unwritten.take_written(9) == []
    unwritten.retire(4)
    assert unwritten.anchor(1, 11) == 11
