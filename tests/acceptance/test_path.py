"""The whole path: a row in SQL, through capture, coordinator, streams and worker, to history and status."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

from confluent_kafka import Producer

from tests.acceptance.conftest import System
from tests.support.poll import eventually


def test_a_job_inserted_with_sql_runs_at_its_times_and_is_told_of(system: System) -> None:
    path = "/hooks/first"
    job_id = system.insert(
        "first",
        tenant="acme",
        every="1 second",
        handler="http",
        payload={"url": system.receiver.url(path), "body": {"a": [1]}},
    )
    runs = system.await_runs(job_id, 3)
    # history: one row a run, in order, a second apart
    assert {run["outcome"] for run in runs} == {"succeeded"}
    assert {(run["tenant"], run["name"], run["attempt"]) for run in runs} == {("acme", "first", 1)}
    times = [run["scheduled_time"] for run in runs]
    assert times == [times[0] + index * timedelta(seconds=1) for index in range(len(times))]
    # the target: each run once, with its identity
    keys = [request.headers["Idempotency-Key"] for request in system.receiver.at(path)]
    assert len(set(keys)) == len(keys)
    first = system.receiver.at(path)[0]
    assert first.body == b'{"a":[1]}' or first.body == b'{"a": [1]}'
    assert int(first.headers["X-Fencing-Token"]) == runs[0]["fencing_token"]
    assert first.at >= times[0].replace(tzinfo=UTC).timestamp()
    # the stream table
    code, says = system.status(f"/jobs/{job_id}")
    assert code == 200
    assert says["job_id"] == job_id
    assert says["tenant"] == "acme"
    system.sql("DELETE FROM cronstream.job_definitions WHERE job_id = %s", job_id)


def test_an_edit_takes_effect_and_a_pause_ends_it(system: System) -> None:
    job_id = system.insert("edited", cron="0 0 1 1 *", handler="log")
    eventually(lambda: _next_run(system, job_id), within=10, says="the job is planned")
    system.sql("UPDATE cronstream.job_definitions SET cron = '* * * * * *' WHERE job_id = %s", job_id)
    system.await_runs(job_id, 2, within=15)
    system.sql("UPDATE cronstream.job_definitions SET enabled = false WHERE job_id = %s", job_id)
    eventually(lambda: _next_run(system, job_id) is None, within=10, says="nothing is due any more")
    paused = system.sql("SELECT updated_at FROM cronstream.job_definitions WHERE job_id = %s", job_id)[0][0]
    other = system.insert("clock", every="1 second", handler="log")
    system.await_runs(other, 3)
    late = [run for run in system.runs(job_id) if run["scheduled_time"] > paused + timedelta(seconds=1)]
    assert late == []
    system.sql("DELETE FROM cronstream.job_definitions WHERE job_id IN (%s, %s)", job_id, other)


def test_a_run_that_fails_is_recorded_as_failed(system: System) -> None:
    job_id = system.insert(
        "fails",
        run_at=_soon(system),
        handler="http",
        payload={"url": system.receiver.url("/status/404")},
        max_attempts=1,
    )
    (run,) = system.await_runs(job_id, 1)
    assert run["outcome"] == "failed"
    assert "404" in run["error"]


def test_a_command_runs_without_a_shell_and_dies_at_its_deadline(system: System) -> None:
    said = system.insert("echo", run_at=_soon(system), handler="command", payload={"argv": ["echo", "$HOME; it's"]})
    slow = system.insert(
        "slow",
        run_at=_soon(system),
        handler="command",
        payload={"argv": ["sleep", "60"]},
        timeout_seconds=1,
        max_attempts=1,
    )
    assert "$HOME; it's" in system.await_runs(said, 1)[0]["output"]
    assert system.await_runs(slow, 1)[0]["outcome"] == "timed_out"


def test_what_a_policy_drops_is_in_history(system: System) -> None:
    job_id = system.insert("too-late", run_at="2020-01-01T00:00:00Z", handler="log")
    (run,) = system.await_runs(job_id, 1)
    assert run["outcome"] == "skipped"
    assert "past" in run["reason"]


def test_five_kinds_of_nothing_arrive_as_stored(system: System) -> None:
    payloads = {"null": "null", "empty": "{}", "text": '""', "sql-null": None}
    jobs = {
        name: system.insert(f"nothing-{name}", run_at=_soon(system), handler="log", payload=payload)
        for name, payload in payloads.items()
    }
    jobs["absent"] = system.insert("nothing-absent", run_at=_soon(system), handler="log")
    for job_id in jobs.values():
        assert system.await_runs(job_id, 1)[0]["outcome"] == "succeeded"


def test_garbage_on_any_topic_blocks_nothing(system: System) -> None:
    topics = system.installation.topics
    job_id = system.insert("goes-on", every="1 second", handler="log")
    system.await_runs(job_id, 1)
    producer = Producer({"bootstrap.servers": system.installation.endpoints.kafka, "message.max.bytes": 1_048_500})
    for topic in (topics.triggers, topics.attempts, topics.outcomes):
        for partition in range(4):
            for value in (None, b"", b"\xc1", bytes(1_048_000)):
                # A header may have no value: Kafka takes it, and so must everybody who reads it.
                producer.produce(topic, value, partition=partition, headers=[("empty", None)])
    producer.produce(topics.changes, b"\xc1", partition=0)
    assert producer.flush(30) == 0
    count = len(system.runs(job_id))
    system.await_runs(job_id, count + 5)
    edited = system.insert("after-garbage", run_at=_soon(system), handler="log")
    system.await_runs(edited, 1)
    assert all(process.poll() is None for process in system.installation.processes)
    system.sql("DELETE FROM cronstream.job_definitions WHERE job_id = %s", job_id)


def _soon(system: System) -> Any:
    return system.sql("SELECT clock_timestamp() + interval '1.5 seconds'")[0][0]


def _next_run(system: System, job_id: int) -> Any:
    rows = system.sql("SELECT next_run_at FROM cronstream.schedules WHERE job_id = %s", job_id)
    return rows[0][0] if rows else None
