"""The history sink on real servers: every outcome is one row, whatever happens in between."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from cronstream.bodies import Report, pack
from cronstream.clock import DAY, SECOND, SystemClock, to_datetime
from cronstream.dead_letters import Record
from cronstream.records import Batch, Item, Kind
from cronstream.topics import partition_of
from streams.history import rows_of
from streams.writer import Heard, HistoryWriter
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from tests.unit.streams.making import cancel, outcome, outcomes, skipped

TODAY = SystemClock().wall_us() // DAY * DAY


@pytest.fixture
def producer(installation: TestInstallation) -> Producer:
    return Producer({"bootstrap.servers": installation.endpoints.kafka, "linger.ms": 2})


@pytest.fixture
def dead(installation: TestInstallation) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": installation.endpoints.kafka, "group.id": "dead"})
    consumer.assign([TopicPartition(installation.topics.dead_letter, number, 0) for number in range(4)])
    yield consumer
    consumer.close()


def publish(installation: TestInstallation, producer: Producer, *records: list[Item] | bytes) -> None:
    for record in records:
        if isinstance(record, bytes):
            producer.produce(installation.topics.outcomes, record, partition=0)
            continue
        for partition in range(4):
            items = [item for item in record if partition_of(item.job_id, 4) == partition]
            if items:
                producer.produce(installation.topics.outcomes, outcomes(items).encode(), partition=partition)
    assert producer.flush(20) == 0


def count(installation: TestInstallation) -> int:
    with installation.connect() as connection:
        row = connection.execute("SELECT count(*) FROM cronstream.job_runs").fetchone()
    assert row is not None
    return int(row[0])


def letters(dead: Consumer, wanted: int) -> list[Any]:
    found: list[Any] = []

    def enough() -> bool:
        found.extend(message for message in dead.consume(100, timeout=0.1) if message.error() is None)
        return len(found) >= wanted

    eventually(enough, within=60)
    return found


def test_every_outcome_is_one_row(installation: TestInstallation, producer: Producer) -> None:
    installation.start("streams.sink", "h1")
    ended = [outcome(Kind.SUCCEEDED, job, TODAY) for job in range(100)]
    started = [outcome(Kind.STARTED, job, TODAY) for job in range(100)]
    publish(installation, producer, started, ended, ended, [skipped(500, TODAY, count=7)])
    eventually(lambda: count(installation) == 101, within=60)
    with installation.connect() as connection:
        row = connection.execute(
            "SELECT scheduled_time, tenant, name, attempt, outcome, reason, run_count, worker"
            " FROM cronstream.job_runs WHERE job_id = 500"
        ).fetchone()
    assert row == (to_datetime(TODAY), "acme", "report", 0, "skipped", "misfire", 7, None)


def test_days_without_a_partition_are_made(installation: TestInstallation, producer: Producer) -> None:
    installation.start("streams.sink", "h1")
    days = [TODAY - 400 * DAY, TODAY - 40 * DAY, TODAY, TODAY + 30 * DAY]
    publish(installation, producer, [outcome(Kind.FAILED, 1, day, error="no") for day in days])
    eventually(lambda: count(installation) == len(days), within=60)


def test_skips_of_thousands_of_days_long_past_make_one_partition_and_nobody_waits(
    installation: TestInstallation, producer: Producer, dead: Consumer
) -> None:
    installation.start("streams.sink", "h1")
    ancient = SystemClock().wall_us() // DAY * DAY - 1_000 * 365 * DAY
    publish(installation, producer, [skipped(1000 + number, ancient + number * DAY) for number in range(6000)])
    publish(installation, producer, [outcome(Kind.SUCCEEDED, 1, TODAY), outcome(Kind.SUCCEEDED, 2, TODAY + 90 * DAY)])
    eventually(lambda: count(installation) == 6001, within=60)
    with installation.connect() as connection:
        partitions = connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE day <> last_day) FROM cronstream.job_runs_tables WHERE attached"
        ).fetchone()
    assert partitions == (10, 1)
    (letter,) = letters(dead, 1)
    assert b"no partition" in dict(letter.headers())["cronstream-error"]


def test_what_cannot_be_stored_is_set_aside_and_blocks_nothing(
    installation: TestInstallation, producer: Producer, dead: Consumer
) -> None:
    installation.start("streams.sink", "h1")
    nul = pack(Report("acme", "report", "w1", TODAY, TODAY, TODAY, "a\x00b", "\x00"))
    bad = Item(Kind.FAILED, 2, TODAY, body=b"nonsense")
    unstorable = Item(Kind.SUCCEEDED, 3, -62_000_000_000 * SECOND, body=pack(Report("a", "b", "w", TODAY, TODAY)))
    publish(
        installation,
        producer,
        b"not a batch",
        [bad, Item(Kind.FAILED, 1, TODAY, body=nul), unstorable, outcome(Kind.SUCCEEDED, 4, TODAY)],
    )
    eventually(lambda: count(installation) >= 2, within=60)
    found = letters(dead, 2)
    reasons = {dict(letter.headers())["cronstream-reason"]: letter for letter in found}
    assert reasons[b"poison_record"].value() == b"not a batch"
    assert 2 in Batch.decode(reasons[b"poison_item"].value()).job_id.tolist()
    with installation.connect() as connection:
        row = connection.execute("SELECT error, output FROM cronstream.job_runs WHERE job_id = 1").fetchone()
    assert row == ("a\ufffdb", "\ufffd")


def test_a_row_that_the_database_refuses_does_not_hold_up_its_batch(
    installation: TestInstallation, producer: Producer, dead: Consumer
) -> None:
    with installation.connect() as connection:
        connection.execute("ALTER TABLE cronstream.job_runs ADD CONSTRAINT no_seven CHECK (job_id <> 7)")
    installation.start("streams.sink", "h1")
    publish(installation, producer, [outcome(Kind.SUCCEEDED, job, TODAY - 90 * DAY) for job in range(20)])
    eventually(lambda: count(installation) == 19, within=60)
    (letter,) = letters(dead, 1)
    assert b"no_seven" in dict(letter.headers())["cronstream-error"]


def test_killed_and_started_again_it_misses_nothing(installation: TestInstallation, producer: Producer) -> None:
    for round_ in range(3):
        sink = installation.start("streams.sink", "h1")
        batch = [outcome(Kind.SUCCEEDED, job, TODAY + round_ * SECOND) for job in range(2000)]
        for start in range(0, 2000, 100):
            publish(installation, producer, batch[start : start + 100])
        eventually(lambda seen=round_: count(installation) > seen * 2000, within=60)  # type: ignore[misc]
        sink.send_signal(signal.SIGKILL)
        sink.wait(60)
    last = installation.start("streams.sink", "h2")
    publish(installation, producer, [outcome(Kind.SUCCEEDED, 1, TODAY + 9 * SECOND)])
    eventually(lambda: count(installation) == 6001, within=30)
    last.terminate()
    assert last.wait(60) == 0


def test_while_postgres_is_away_it_waits(installation: TestInstallation, producer: Producer) -> None:
    sink = installation.start("streams.sink", "h1")
    publish(installation, producer, [outcome(Kind.SUCCEEDED, 1, TODAY)])
    eventually(lambda: count(installation) == 1, within=60)
    installation.endpoints.kill("postgres")
    try:
        publish(installation, producer, [outcome(Kind.SUCCEEDED, job, TODAY) for job in range(2, 200)])
        eventually(lambda: "Postgres does not take rows" in installation.log_of("h1"), within=60)
        assert sink.poll() is None
    finally:
        installation.endpoints.start("postgres")
    eventually(lambda: count(installation) == 199, within=30)
    assert sink.poll() is None


Status = dict[int, tuple[Any, ...]]


def statuses(installation: TestInstallation) -> Status:
    with installation.connect() as connection:
        rows = connection.execute(
            "SELECT job_id, state, running, succeeded, failed, skipped, last_error FROM cronstream.job_status"
        ).fetchall()
    return {row[0]: row[1:] for row in rows}


def test_the_status_of_jobs_is_in_sql_within_two_seconds(installation: TestInstallation, producer: Producer) -> None:
    installation.start("streams.sink", "h1")
    publish(installation, producer, [outcome(Kind.SUCCEEDED, 99, TODAY)])
    eventually(lambda: 99 in statuses(installation), within=60)

    publish(installation, producer, [outcome(Kind.STARTED, 1, TODAY), outcome(Kind.STARTED, 2, TODAY)])
    running = {1: ("running", 1, 0, 0, 0, None), 2: ("running", 1, 0, 0, 0, None)}
    eventually(lambda: running.items() <= statuses(installation).items(), within=2)
    with installation.connect() as connection:
        row = connection.execute("SELECT job_id, tenant, worker FROM cronstream.running_attempts ORDER BY 1").fetchall()
    assert row == [(1, "acme", "w1"), (2, "acme", "w1")]

    publish(
        installation,
        producer,
        [outcome(Kind.FAILED, 1, TODAY, error="no"), outcome(Kind.STARTED, 1, TODAY, attempt=2)],
        [outcome(Kind.SUCCEEDED, 2, TODAY), skipped(2, TODAY + SECOND, count=3)],
    )
    now = {1: ("running", 1, 0, 1, 0, "no"), 2: ("skipped", 0, 1, 0, 3, "misfire")}
    eventually(lambda: now.items() <= statuses(installation).items(), within=2)

    publish(installation, producer, [outcome(Kind.SUCCEEDED, 1, TODAY, attempt=2)], [cancel(2)])
    now = {1: ("succeeded", 0, 1, 1, 0, None), 2: ("deleted", 0, 1, 0, 3, "misfire")}
    eventually(lambda: now.items() <= statuses(installation).items(), within=2)

    publish(installation, producer, [cancel(3)])  # before anything was heard of it
    eventually(lambda: statuses(installation).get(3) == ("deleted", 0, 0, 0, 0, None), within=2)
    publish(installation, producer, [outcome(Kind.SUCCEEDED, 3, TODAY)])
    eventually(lambda: statuses(installation).get(3) == ("deleted", 0, 1, 0, 0, None), within=2)


def test_a_role_that_may_read_history_reads_all_of_it_and_nothing_else(installation: TestInstallation) -> None:
    """As a role that is there: the owner may not make one."""
    readable = ("job_runs", "job_status", "running_attempts", "requests", "history_exports")
    others = ("job_definitions", "job_changes", "schedules", "dead_letters")
    with installation.connect() as connection, connection.transaction(force_rollback=True):
        connection.execute("SELECT cronstream.ensure_job_runs_partition('2020-01-01')")
        connection.execute(
            "INSERT INTO cronstream.job_runs (job_id, scheduled_time, attempt, outcome)"
            " VALUES (1, '2020-01-01 12:00Z', 0, 'skipped')"
        )
        connection.execute("SELECT cronstream.grant_history('pg_read_all_stats')")
        connection.execute("SET LOCAL ROLE pg_read_all_stats")
        for table in readable:
            connection.execute(f"SELECT * FROM cronstream.{table}".encode())
        assert connection.execute("SELECT outcome FROM cronstream.job_runs").fetchall() == [("skipped",)]
        for table in others:
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(f"SELECT * FROM cronstream.{table}".encode())
        for change in ("DELETE FROM cronstream.job_runs", "UPDATE cronstream.requests SET answer = NULL"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(change.encode())


def test_records_written_again_change_no_status(installation: TestInstallation) -> None:
    writer = HistoryWriter(installation.connect)
    first = heard(0, outcome(Kind.STARTED, 1, TODAY), outcome(Kind.STARTED, 2, TODAY))
    second = heard(1, outcome(Kind.SUCCEEDED, 1, TODAY), skipped(3, TODAY, count=4))
    third = heard(2, outcome(Kind.FAILED, 1, TODAY, attempt=2, error="no"), outcome(Kind.SUCCEEDED, 2, TODAY))
    assert writer.write([first, second], "topic") == []
    assert writer.write([third], "topic") == []
    right = statuses(installation)
    assert right == {
        1: ("failed", 0, 1, 1, 0, "no"),
        2: ("succeeded", 0, 1, 0, 0, None),
        3: ("skipped", 0, 0, 0, 4, "misfire"),
    }
    for again in ([first], [second], [first, second, third], [third]):
        assert writer.write(again, "topic") == []
        assert statuses(installation) == right
    # A topic that was made anew counts its offsets from 0, and they are news.
    assert writer.write([heard(0, outcome(Kind.STARTED, 1, TODAY + SECOND))], "topic made anew") == []
    assert statuses(installation)[1][:2] == ("running", 1)
    # The same end at another offset, and a start told again after its end, count for nothing.
    assert writer.write([heard(3, outcome(Kind.SUCCEEDED, 2, TODAY), outcome(Kind.STARTED, 2, TODAY))], "topic") == []
    assert statuses(installation)[2] == right[2]
    writer.close()


def test_a_refused_row_leaves_the_status_of_the_others_right(installation: TestInstallation) -> None:
    with installation.connect() as connection:
        connection.execute("ALTER TABLE cronstream.job_runs ADD CONSTRAINT no_seven CHECK (job_id <> 7)")
    writer = HistoryWriter(installation.connect)
    countless = skipped(20, TODAY, count=2**63)
    record = heard(0, *(outcome(Kind.SUCCEEDED, job, TODAY) for job in range(20)), countless)
    refused = writer.write([record], "topic")
    assert [(one.record, one.row.job_id) for one in refused] == [(record.record, 7), (record.record, 20)]
    assert ("no_seven" in refused[0].why, refused[1].why) == (True, "int too big to convert")
    known = statuses(installation)
    assert all(known[job] == ("succeeded", 0, 1, 0, 0, None) for job in range(20) if job != 7)
    assert known[7][2] == 0, "what is not in history is not counted"
    writer.close()


def heard(offset: int, *items: Item) -> Heard:
    batch = outcomes(items)
    return Heard(Record("outcomes", 0, offset, None, batch.encode(), []), batch, rows_of(batch)[0])
