"""``cronstream status`` on the real stack: who leads, what waits where, how late runs start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

from cli.groups import stand_at
from cronstream.settings import Installation
from cronstream.topics import partition_of
from sql.queries import load
from tests.support.command import Command, define
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from tests.unit.streams.making import run, triggers

STARTED = """
INSERT INTO cronstream.job_runs (job_id, scheduled_time, request_id, attempt, tenant, name, outcome, started_at)
SELECT row_number() OVER (), now() - late, %(request_id)s, %(attempt)s, 'acme', 'job', 'succeeded', now()
FROM unnest(%(late)s::interval[]) AS late
"""
# A run, and after it more retries than are read at the end: 4 of them fill a block.
LONG_DAY = """
INSERT INTO cronstream.job_runs (job_id, scheduled_time, attempt, outcome, started_at, error)
SELECT number, now() - interval '10 s', CASE number WHEN 0 THEN 1 ELSE 2 END, 'failed', now(), repeat('x', 1800)
FROM generate_series(0, 4000) AS number
"""
RUNS = """
INSERT INTO cronstream.running_attempts (job_id, scheduled_time, request_id, attempt, tenant, name, started_at, worker)
VALUES (7, now() - interval '9 s', 0, 1, 'acme', 'other', now(), 'worker-1')
"""


@pytest.fixture
def cronstream(installation: TestInstallation) -> Command:
    return Command(installation.variables)


@pytest.fixture
def database(installation: TestInstallation) -> Iterator[psycopg.Connection[Any]]:
    with installation.connect() as connection:
        yield connection


@pytest.fixture
def job(database: psycopg.Connection[Any]) -> int:
    return define(database, "billing", "nightly")


def part(cronstream: Command, name: str) -> dict[str, Any]:
    """What one part says; the others may be down."""
    found: dict[str, Any] = json.loads(cronstream("status", "--json").stdout)[name]
    return found


def publish(installation: TestInstallation, jobs: list[int]) -> None:
    """A trigger for each, in one transaction, as a leader does."""
    producer = Producer({"bootstrap.servers": installation.endpoints.kafka, "transactional.id": "the-leader"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for job in jobs:
        partition = partition_of(job, 4)
        producer.produce(installation.topics.triggers, triggers([run(job)]).encode(), partition=partition)
    producer.commit_transaction(30)


def test_what_streams_have_not_done_is_told_by_topic_and_no_marker_is_a_record(
    installation: TestInstallation, cronstream: Command
) -> None:
    triggers_topic = installation.topics.triggers
    jobs = list(range(1, 9))
    publish(installation, jobs)
    partitions = len({partition_of(job, 4) for job in jobs})
    # The marker that ends the transaction stands behind the records of each partition.
    most = len(jobs) + partitions
    waits = f"{most} records of {triggers_topic} wait, the oldest for "
    eventually(lambda: waits in part(cronstream, "streams").get("down", ""), within=60, every=0.5)
    stand = stand_at(installation.settings(Installation), f"{installation.name}-streams", [triggers_topic], 10)
    assert stand.backlog()["backlog"] == most
    assert timedelta(0) <= stand.backlog()["oldest_age"] < timedelta(seconds=120)

    installation.start("streams", "streams-1")

    def done() -> Any:
        backlog = part(cronstream, "streams").get("backlog") or {}
        return backlog if backlog and not any(topic["backlog"] for topic in backlog.values()) else None

    backlog = eventually(done, within=90, every=0.5, says="nothing waits, whatever markers do")
    topics = installation.topics
    assert list(backlog) == [topics.triggers, topics.retry_due, topics.outcomes]
    by_partition = {str(number): 0 for number in range(4)}
    assert backlog[triggers_topic] == {"backlog": 0, "oldest_age": None, "backlog_by_partition": by_partition}
    eventually(lambda: f"{triggers_topic}: backlog 0" in cronstream("status").stdout, within=60, every=0.5)


def test_status_shows_how_late_runs_started(cronstream: Command, database: psycopg.Connection[Any]) -> None:
    assert part(cronstream, "postgres")["started"]["runs"] == 0
    assert "in the last minute: no run started that history knows of" in cronstream("status").stdout
    database.execute(STARTED, {"late": ["20 ms"] * 98 + ["250 ms"], "request_id": 0, "attempt": 1})
    database.execute(STARTED, {"late": ["30 s"], "request_id": 0, "attempt": 2})
    database.execute(STARTED, {"late": ["40 s"], "request_id": 5, "attempt": 1})
    database.execute(RUNS)
    started = part(cronstream, "postgres")["started"]
    assert started == {"runs": 100, "lateness_p50_ms": 20, "lateness_p99_ms": 250, "lateness_max_ms": 9000}
    said = "in the last minute: scheduled time to a run's start p50 20.0 ms, p99 250.0 ms, max 9,000.0 ms (100 runs)"
    assert said in cronstream("status").stdout


def test_how_late_runs_started_is_read_at_the_end_of_the_day_however_long_it_is(
    cronstream: Command, database: psycopg.Connection[Any]
) -> None:
    database.execute(LONG_DAY)
    database.execute(STARTED, {"late": ["20 ms"], "request_id": 0, "attempt": 1})
    plan = database.execute("EXPLAIN " + load("cli")["started_lately"]).fetchall()
    assert any("Tid Range Scan" in line for (line,) in plan)
    assert part(cronstream, "postgres")["started"]["lateness_max_ms"] == 20, "what is far from the end is not read"


def test_status_counts_definitions_open_edits_and_open_requests(cronstream: Command, job: int) -> None:
    cronstream("jobs", "pause", job)
    cronstream("jobs", "run-now", job)
    result = cronstream("status", "--json")
    assert result.exit_code == 1, "no coordinator runs here"
    postgres = json.loads(result.stdout)["postgres"]
    assert (postgres["definitions"], postgres["paused"], postgres["open_changes"]) == (1, 1, 2)
    assert (postgres["open_requests"], postgres["oldest_overdue"]) == (1, None)


def test_status_shows_who_leads_and_what_streams_count(installation: TestInstallation, cronstream: Command) -> None:
    installation.start("coordinator", "the-leader")
    installation.start("streams", "streams-1")
    installation.start("workers", "worker-1")
    installation.start("streams.sink", "sink-1")
    installation.start("streams.alerts", "alerts-1")
    installation.start("streams.commands", "commands-1")
    groups = ("workers", "history", "alerts", "commands")

    def both() -> Any:
        answer = json.loads(cronstream("status", "--json").stdout)
        figures = "figures" in answer["leader"] and "figures" in answer["streams"]
        return answer if figures and all("members" in answer[part] for part in groups) else None

    answer = eventually(both, within=60, every=0.5, says="a leader and a streams process answer")
    assert answer["leader"]["node"] == "the-leader"
    assert answer["leader"]["token"] > 0
    assert answer["streams"]["figures"]["admitted"] == 0
    assert [answer[group]["members"] for group in groups] == [["worker-1"], ["sink-1"], ["alerts-1"], ["commands-1"]]
    # A probe has two seconds, and a busy machine takes them now and then.
    shown = eventually(
        lambda: text if "could not be asked" not in (text := cronstream("status").stdout) else "", within=60, every=0.5
    )
    assert "so this etcd is in use" in cronstream.refusal("adopt-etcd", "--yes")
    assert "worker-1; backlog 0" in shown
    assert f"the-leader at {answer['leader']['address']}, token {answer['leader']['token']}" in shown
