"""What a user asks for beside the schedule, in SQL or by a command, runs and is remembered."""

from __future__ import annotations

import json
import uuid
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from cronstream.topics import Topics
from tests.acceptance.conftest import System
from tests.support.poll import eventually


def ran(system: System, request_id: int) -> list[tuple[Any, ...]]:
    statement = (
        "SELECT outcome, scheduled_time, started_at - scheduled_time FROM cronstream.job_runs"
        " WHERE request_id = %s ORDER BY scheduled_time"
    )
    return system.sql(statement, request_id)


def test_a_paused_job_is_run_now_by_one_line_of_sql(system: System) -> None:
    system.insert("on-demand", cron="@yearly", handler="log", enabled=False)
    answer = system.sql("SELECT cronstream.run_now('default', 'on-demand')")[0][0]
    ((outcome, scheduled, late),) = eventually(lambda: ran(system, answer["request_id"]), within=20)
    assert outcome == "succeeded"
    assert scheduled.isoformat(timespec="microseconds").replace("+00:00", "Z") == answer["scheduled_time"]
    assert late.total_seconds() < 5


def test_a_week_of_an_hourly_job_is_run_again(system: System) -> None:
    system.insert("hourly", cron="0 * * * *", handler="log")
    answer = system.sql(
        "SELECT cronstream.backfill('default', 'hourly', '2026-11-01T00:00:00Z', '2026-11-07T23:59:59Z')"
    )[0][0]
    rows = eventually(
        lambda: rows if len(rows := ran(system, answer["request_id"])) >= 7 * 24 else None, within=60, every=0.2
    )
    assert {outcome for outcome, _, _ in rows} == {"succeeded"}
    assert len({scheduled for _, scheduled, _ in rows}) == len(rows) == 7 * 24


def test_a_command_makes_a_job_another_runs_it_and_both_are_answered(system: System) -> None:
    installation = system.installation
    installation.start("streams.commands", "commands1")
    topics, kafka = Topics(installation.name), installation.endpoints.kafka
    producer = Producer({"bootstrap.servers": kafka})
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": uuid.uuid4().hex, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topics.command_results, partition, 0) for partition in range(4)])
    try:
        for command in (
            {"command": "upsert", "id": "1", "definition": {"cron": "@yearly", "handler": "log"}},
            {"command": "run-now", "id": "2"},
        ):
            producer.produce(topics.commands, json.dumps({**command, "name": "by-kafka"}), "default/by-kafka")
        assert producer.flush(10) == 0
        answers: dict[str, dict[str, Any]] = {}

        def answered() -> bool:
            for message in consumer.consume(10, timeout=0.1):
                assert message.error() is None
                answer = json.loads(message.value() or b"")
                answers[answer["id"]] = answer
            return len(answers) == 2

        eventually(answered, within=40)
    finally:
        consumer.close()
    assert answers["1"]["created"] is True
    assert [row[0] for row in eventually(lambda: ran(system, answers["2"]["request_id"]), within=20)] == ["succeeded"]
