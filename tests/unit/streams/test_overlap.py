"""Runs that must not overlap: whose turn it is, through repetitions of any record."""

from __future__ import annotations

import msgspec

from cronstream.bodies import report_of, skip_of
from cronstream.clock import MINUTE
from cronstream.dead_letters import Record
from cronstream.records import Batch, Item, Kind
from cronstream.topics import Topics
from streams.settlement import Tables
from streams.stages import Settling
from streams.status import JobStatus
from tests.unit.streams.making import NOON, Settled, at, cancel, outcome, outcomes, run, settle, work

JOB = 1
TOPICS = Topics()
LIMIT = 2


def minute(number: int) -> int:
    return NOON + number * MINUTE


def arriving(*minutes: int, kind: Kind = Kind.RUN_QUEUED) -> list[Item]:
    return [run(JOB, minute(number), kind=kind) for number in minutes]


class Partition:
    """Tables of one partition; what follows from a record is the same when the record comes again."""

    def __init__(self) -> None:
        self.status: dict[int, JobStatus] = {}
        self.waiting: dict[bytes, bytes] = {}
        self.offset = -1

    def take(self, items: list[Item], admitted: int | None = None) -> Settled:
        self.offset += 1
        first = self.decide(items, admitted)
        self.write_waiting(first)
        # A crash once the rows of those that wait are written, then one once everything is.
        assert following(self.decide(items, admitted)) == following(first)
        self.status |= {job: JobStatus.decode(status.encode()) for job, status in first.statuses.items()}
        before = (dict(self.status), dict(self.waiting))
        again = self.decide(items, admitted)
        assert following(again) == following(first)
        assert again.statuses == {}
        self.write_waiting(again)
        assert (self.status, self.waiting) == before
        return first

    def decide(self, items: list[Item], admitted: int | None) -> Settled:
        source = None if admitted is None else at(admitted)
        return settle(Tables(self.status.get, self.waiting.get, LIMIT), outcomes(items, source=source), self.offset)

    def write_waiting(self, settlement: Settled) -> None:
        for key, value in settlement.waiting.items():
            if value is None:
                self.waiting.pop(key, None)
            else:
                self.waiting[key] = value


def following(settlement: Settled) -> object:
    return (settlement.starts, settlement.closed, settlement.retries, settlement.refused)


def started(settlement: Settled) -> list[int]:
    return [(item.scheduled_us - NOON) // MINUTE for _, _, item in settlement.starts]


def skipped(settlement: Settled) -> list[tuple[int, str]]:
    return [((item.scheduled_us - NOON) // MINUTE, skip_of(item.body).reason) for item in settlement.closed]


def done(number: int, kind: Kind = Kind.SUCCEEDED, attempt: int = 1) -> list[Item]:
    return [outcome(kind, JOB, minute(number), attempt, work=work(max_attempts=2))]


def test_queued_runs_take_their_turns_in_order() -> None:
    partition = Partition()
    assert started(partition.take(arriving(0, 1), 10)) == [0]
    assert started(partition.take(arriving(2), 11)) == []
    assert started(partition.take(done(0))) == [1]
    assert started(partition.take(done(1))) == [2]
    assert started(partition.take(done(2))) == []
    assert started(partition.take(arriving(3), 12)) == [3]


def test_a_run_starts_as_it_arrived() -> None:
    partition = Partition()
    partition.take(arriving(0, 1), 10)
    ((token, published_at, item),) = partition.take(done(0)).starts
    assert (token, published_at) == (1, NOON)
    assert item == msgspec.structs.replace(arriving(1)[0], kind=Kind.RUN)


def test_a_run_that_waited_was_published_by_its_leader_and_not_when_its_turn_came() -> None:
    rows: dict[bytes, bytes | None] = {}
    waiting: dict[bytes, bytes | None] = {}
    stage = Settling(TOPICS, rows.get, waiting.get, LIMIT)

    def take(offset: int, batch: Batch) -> list[Batch]:
        effects = stage.decide([Record(TOPICS.outcomes, 0, offset, None, batch.encode(), [])])
        rows.update(effects.rows)
        waiting.update(effects.waiting)
        return [Batch.decode(send.value) for send in effects.sends if send.topic == TOPICS.attempts]

    for offset, number in enumerate((0, 1, 2)):
        take(offset, Batch.of(arriving(number), token=7, published_at=minute(number) + 5, source=at(10 + offset)))
    ended = Batch.of(done(0), token=8, published_at=minute(30))
    (released,) = take(3, ended)
    assert [item.scheduled_us for item in released.items()] == [minute(1)]
    assert (released.token, released.published_at) == (7, minute(1) + 5)


def test_what_the_queue_does_not_hold_is_skipped() -> None:
    settlement = Partition().take(arriving(0, 1, 2, 3, 4), 10)
    assert started(settlement) == [0]
    assert skipped(settlement) == [(3, "queue full"), (4, "queue full")]


def test_a_run_alone_is_skipped_while_another_is_under_way() -> None:
    partition = Partition()
    partition.take(arriving(0, kind=Kind.RUN_ALONE), 10)
    assert skipped(partition.take(arriving(1, kind=Kind.RUN_ALONE), 11)) == [(1, "overlap")]
    partition.take(done(0))
    assert started(partition.take(arriving(2, kind=Kind.RUN_ALONE), 12)) == [2]


def test_a_run_is_under_way_until_its_retries_are_over() -> None:
    partition = Partition()
    partition.take(arriving(0, 1), 10)
    failed = partition.take(done(0, Kind.FAILED))
    assert (started(failed), len(failed.retries)) == ([], 1)
    assert started(partition.take(done(0, Kind.FAILED))) == [], "an end that comes twice"
    given_up = partition.take(done(0, Kind.TIMED_OUT, attempt=2))
    assert started(given_up) == [1]
    assert [one.reason for one in given_up.refused] == ["exhausted"]
    assert started(partition.take(done(0, Kind.FAILED, attempt=2))) == []


def test_ends_of_others_bring_nobody_on() -> None:
    partition = Partition()
    partition.take(arriving(0, 1), 10)
    for other in (done(1), done(7), [outcome(Kind.SUCCEEDED, 99)]):
        assert started(partition.take(other)) == []


def test_an_end_that_cannot_be_read_is_an_end() -> None:
    partition = Partition()
    partition.take(arriving(0, 1), 10)
    settlement = partition.take([Item(Kind.FAILED, JOB, minute(0), body=b"\xc1")])
    assert started(settlement) == [1]
    assert [one.reason for one in settlement.refused] == ["poison_item"]


def test_what_admission_hands_on_twice_arrives_once() -> None:
    partition = Partition()
    partition.take(arriving(0, 1), 10)
    assert following(partition.take(arriving(0, 1), 10)) == ([], [], [], [])
    partition.take(done(0))
    assert following(partition.take(arriving(0, 1), 10)) == ([], [], [], [])
    partition.take(done(1))
    assert following(partition.take(arriving(0, 1), 10)) == ([], [], [], [])


def test_the_queue_of_a_deleted_job_ends_one_after_the_other() -> None:
    partition = Partition()
    partition.take(arriving(0, 1, 2), 10)
    partition.take([cancel(JOB)], 11)
    for ended, following_run in ((done(0), 1), (done(1, Kind.CANCELLED), 2)):
        settlement = partition.take(ended)
        assert settlement.starts == []
        assert [(item.kind, item.scheduled_us) for item in settlement.closed] == [
            (Kind.CANCELLED, minute(following_run))
        ]
        assert report_of(settlement.closed[0].body).error == "the job was deleted"
    assert partition.take(done(2, Kind.CANCELLED)).closed == []


def test_rows_of_those_that_waited_are_swept() -> None:
    partition = Partition()
    partition.take(arriving(0), 10)
    for number in range(1, 50):
        partition.take(arriving(number), 10 + number)
        partition.take(done(number - 1))
    assert len(partition.waiting) <= 2
    assert partition.status[JOB].overlap is not None


def test_jobs_that_do_not_ask_have_no_such_state() -> None:
    partition = Partition()
    partition.take(done(0))
    assert partition.status[JOB].overlap is None
    assert partition.waiting == {}
