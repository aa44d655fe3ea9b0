"""Handlers on a real worker, broker and database: what they do to their targets, and what they cannot do to others."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg.conninfo import conninfo_to_dict

from cronstream.bodies import Policy, Work, pack, report_of
from cronstream.records import Item, Kind
from tests.support.installation import ROOT, TestInstallation
from tests.support.poll import eventually
from tests.support.receiver import Receiver
from tests.support.streams import free_port
from tests.support.workers import SCHEDULED_US, TOKEN, World, is_alive, log_item

KEY = f"1-{SCHEDULED_US}-0"


def job(job_id: int, handler: str, payload: Any, *, tenant: str = "acme", seconds: float = 30) -> Item:
    work = Work(tenant, f"job-{job_id}", handler, json.dumps(payload).encode(), Policy(timeout_seconds=seconds))
    return Item(Kind.RUN, job_id, SCHEDULED_US, body=pack(work))


@pytest.fixture
def world(kafka: str, installation: TestInstallation) -> Iterator[World]:
    made = World(kafka, installation)
    yield made
    made.close()


@pytest.fixture
def topic(kafka: str, installation: TestInstallation) -> Iterator[str]:
    """A topic that is not the installation's own."""
    name = f"of-{installation.name}"
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(name, num_partitions=2, replication_factor=1)])[name].result(30)
    yield name
    admin.delete_topics([name])[name].result(30)


def records_of(kafka: str, topic: str, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": f"test-{topic}", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    found: list[Message] = []

    def read() -> bool:
        found.extend(message for message in consumer.consume(10, 0.1) if message.error() is None)
        return len(found) >= count

    eventually(read, within=30, says=f"{count} records")
    consumer.close()
    return found


def test_http_tells_its_target_which_run_it_is_and_what_it_says_decides(world: World) -> None:
    with Receiver() as receiver:
        world.worker("w1")
        statuses = {2: 404, 3: 503, 4: 302, 5: 429}
        world.emit(0, job(1, "http", {"url": receiver.url("/hook"), "body": {"n": 1}}))
        world.emit(0, *(job(n, "http", {"url": receiver.url(f"/status/{code}")}) for n, code in statuses.items()))
        world.emit(0, job(6, "http", {"url": receiver.url("/status/404"), "retry_on": [404]}))
        world.emit(0, job(7, "http", {"url": "http://169.254.169.254/latest/meta-data"}))
        ends = world.wait_for_ends(7)
        [request] = receiver.at("/hook")
    assert ends == {1: "SUCCEEDED", **dict.fromkeys(range(2, 8), "FAILED")}
    assert request.body == b'{"n": 1}'
    assert request.headers["Idempotency-Key"] == KEY
    assert request.headers["X-Fencing-Token"] == str(TOKEN)
    final = {number: world.report(number, Kind.FAILED).final for number in range(2, 8)}
    assert final == {2: True, 3: False, 4: True, 5: False, 6: False, 7: True}
    assert "CRONSTREAM_HTTP_ALLOW" in (world.report(7, Kind.FAILED).error or "")


def test_kafka_produces_to_others_topics_and_never_to_the_installations_own(
    world: World, kafka: str, topic: str
) -> None:
    world.worker("w1")
    payload = {"topic": topic, "key": "k", "value": {"n": [1]}, "headers": {"own": "1", "cronstream-attempt": "9"}}
    world.emit(0, job(1, "kafka", payload), job(2, "kafka", {"topic": topic, "value": "text"}))
    own = world.installation.name
    forged = [world.topics.triggers, world.topics.attempts, f"{own}-streams-x", "__consumer_offsets"]
    world.emit(0, *(job(10 + n, "kafka", {"topic": name}) for n, name in enumerate(forged)))
    world.emit(0, job(20, "kafka", {"topic": f"{topic}-nosuch"}))
    ends = world.wait_for_ends(7)
    assert {number for number, kind in ends.items() if kind == "SUCCEEDED"} == {1, 2}
    assert all(world.report(number, Kind.FAILED).final for number in (10, 11, 12, 13, 20))
    by_value = {message.value(): message for message in records_of(kafka, topic, 2)}
    sent = by_value[b'{"n": [1]}']
    headers = dict(sent.headers() or [])
    assert (sent.key(), headers["own"], headers["cronstream-attempt"]) == (b"k", b"1", b"1")
    assert headers["cronstream-idempotency-key"] == KEY.encode()
    assert by_value[b"text"].key() is None
    place = json.loads(world.report(1, Kind.SUCCEEDED).output or "")
    assert place == {"topic": topic, "partition": sent.partition(), "offset": sent.offset()}
    assert f"{topic}-nosuch" not in AdminClient({"bootstrap.servers": kafka}).list_topics(timeout=10).topics


@pytest.fixture
def connections(installation: TestInstallation) -> Path:
    """The file of connections: one to the test's own database, one to nowhere."""
    parts = conninfo_to_dict(installation.dsn)
    secret = installation.folder / "password"
    secret.write_text(str(parts.pop("password", "")))
    dsn = " ".join(f"{name}={value}" for name, value in parts.items())
    path = installation.folder / "connections.toml"
    path.write_text(
        f'[own]\ndsn = "{dsn}"\npassword_file = "{secret}"\nconnections = 4\n'
        '[away]\ndsn = "host=127.0.0.1 port=1 dbname=x"\n'
    )
    return path


def test_sql_runs_one_statement_and_says_how_many_rows(
    world: World, installation: TestInstallation, connections: Path
) -> None:
    with installation.connect() as connection:
        connection.execute(
            "CREATE TABLE effects (key text PRIMARY KEY, token bigint, at timestamptz, attempt int, note jsonb)"
        )
    columns = "%(idempotency_key)s, %(fencing_token)s, %(scheduled_time)s, %(attempt)s, %(n)s"
    statements: dict[int, tuple[str, str]] = {
        2: ("own", "SELECT * FROM generate_series(1, 100000)"),
        3: ("own", "INSERT INTO effects (key) VALUES (NULL)"),
        4: ("own", "SELEKT"),
        5: ("own", "SELECT 1; SELECT 2"),
        6: ("own", "COPY effects TO STDOUT"),
        7: ("away", "SELECT 1"),
        8: ("nosuch", "SELECT 1"),
        9: ("own", "SELECT pg_terminate_backend(pg_backend_pid())"),
        11: ("own", "BEGIN"),
        12: ("own", "SET application_name = 'mine'"),
        14: ("own", "-- SELECT 1"),
    }
    world.worker("w1", sql_connections=connections)
    once = {
        "connection": "own",
        "statement": f"INSERT INTO effects VALUES ({columns})",
        "parameters": {"n": {"a": [1]}, "attempt": "forged"},
    }
    world.emit(0, job(1, "sql", once))
    world.wait_for_ends(1)
    for number, (name, statement) in statements.items():
        world.emit(0, job(number, "sql", {"connection": name, "statement": statement}))
    world.wait_for_ends(12)
    is_clean = "SELECT 1 / (current_setting('application_name') <> 'mine')::int"
    world.emit(0, job(13, "sql", {"connection": "own", "statement": is_clean}))
    ends = world.wait_for_ends(13)
    assert {number for number, kind in ends.items() if kind == "SUCCEEDED"} == {1, 2, 11, 12, 13}
    assert json.loads(world.report(1, Kind.SUCCEEDED).output or "") == {"rows": 1}
    assert json.loads(world.report(2, Kind.SUCCEEDED).output or "") == {"rows": 100_000}
    failed = {number: world.report(number, Kind.FAILED) for number, kind in ends.items() if kind == "FAILED"}
    assert {number: report.final for number, report in failed.items()} == {
        **dict.fromkeys((3, 4, 5, 6, 8, 14), True),
        **dict.fromkeys((7, 9), False),
    }
    assert (failed[3].error or "").startswith("23502: null value")
    assert (failed[14].error or "").startswith("the statement is empty")
    with installation.connect() as connection:
        [row] = connection.execute(
            "SELECT key, token, at = to_timestamp(%s), attempt, note::text FROM effects", [SCHEDULED_US / 1e6]
        ).fetchall()
    assert row == (KEY, TOKEN, True, 1, '{"a": [1]}')


def test_a_statement_dies_with_its_run(world: World, installation: TestInstallation, connections: Path) -> None:
    asleep = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'"
    with installation.connect() as connection:

        def sleepers() -> int:
            [[count]] = connection.execute(asleep).fetchall()
            return int(count)

        worker = world.worker("w1", sql_connections=connections, drain_seconds=0)
        sleep = {"connection": "own", "statement": "SELECT pg_sleep(600)"}
        world.emit(0, job(1, "sql", sleep, seconds=3))
        eventually(lambda: sleepers() == 1, within=20)
        assert world.wait_for_ends(1) == {1: "TIMED_OUT"}
        eventually(lambda: sleepers() == 0, within=10)
        world.emit(0, job(2, "sql", sleep, seconds=600))
        eventually(lambda: sleepers() == 1, within=20)
        worker.terminate()
        assert worker.wait(60) == 0
        assert world.wait_for_ends(2)[2] == "LOST"
        eventually(lambda: sleepers() == 0, within=10)


HOSTILE = """
    import os, signal, subprocess, sys, time

    def hangs(call):
        while True:
            time.sleep(60)

    def forks(call):
        for _ in range(20):
            if os.fork() == 0:
                os.setsid()
                with open(call["arguments"]["pids"], "a") as pids:
                    pids.write(f"{os.getpid()}\\n")
                time.sleep(600)
        time.sleep(600)

    def floods(call):
        for _ in range(2000):
            sys.stdout.write("x" * 10_000)
        sys.stdout.write("the end")

    def eats(call):
        held = [bytearray(50 << 20) for _ in range(100)]

    def leaves(call):
        os._exit(9)
"""


def test_hostile_programs_cost_their_own_attempts_and_nothing_else(world: World, tmp_path: Path) -> None:
    (tmp_path / "hostile.py").write_text(textwrap.dedent(HOSTILE))
    (tmp_path / "broken.py").write_text("raise RuntimeError('on import')")
    pids = tmp_path / "pids"
    names = ["hangs", "forks", "floods", "eats", "leaves"]
    worker = world.worker("w1", python_modules="hostile,broken", python_path=tmp_path, process_memory_mib=200)
    for number, name in enumerate(names, 1):
        call = {"entry_point": f"hostile:{name}", "arguments": {"pids": str(pids)}}
        world.emit(0, job(number, "python", call, tenant=name, seconds=6))
    world.emit(0, job(6, "python", {"entry_point": "broken:run"}, tenant="t6"))
    world.emit(0, job(7, "command", {"argv": ["sh", "-c", "kill -9 $PPID; sleep 600"]}, tenant="t7"))
    world.emit(0, *map(log_item, range(100, 150)))
    ends = world.wait_for_ends(57, within=60)
    assert {number: ends[number] for number in range(1, 8)} == {
        **dict.fromkeys((1, 2), "TIMED_OUT"),
        3: "SUCCEEDED",
        **dict.fromkeys((4, 5, 6, 7), "FAILED"),
    }
    assert {ends[number] for number in range(100, 150)} == {"SUCCEEDED"}
    flood = world.report(3, Kind.SUCCEEDED).output or ""
    assert len(flood) == 16 * 1024
    assert flood.startswith("[20000007 bytes in all; the end:]")
    assert flood.endswith("the end")
    assert "MemoryError" in (world.report(4, Kind.FAILED).output or "")
    assert world.report(5, Kind.FAILED).error == "exit code 9"
    assert "RuntimeError: on import" in (world.report(6, Kind.FAILED).output or "")
    assert world.report(7, Kind.FAILED).error == "killed by SIGKILL"
    family = [int(line) for line in pids.read_text().split()]
    assert len(family) == 20
    assert not any(is_alive(pid) for pid in family)
    assert worker.poll() is None


def test_a_program_that_kills_its_worker_is_a_lost_attempt_and_the_others_go_on(world: World, tmp_path: Path) -> None:
    """The worker is the guard's parent: SIGKILL for it, and a supervisor that starts the next one."""
    kill = f"echo >> {tmp_path}/tries; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 600"
    first = world.worker("w1")
    world.emit(0, job(1, "command", {"argv": ["sh", "-c", kill]}), *map(log_item, range(10, 20)))
    assert first.wait(60) == -signal.SIGKILL
    world.worker("w1")
    ends = world.wait_for_ends(11)
    assert ends == {1: "LOST", **dict.fromkeys(range(10, 20), "SUCCEEDED")}
    assert (tmp_path / "tries").read_text() == "\n"


def test_one_tenant_that_hangs_all_its_jobs_does_not_delay_another(world: World) -> None:
    cores = os.cpu_count() or 1
    world.worker("w1", slots=20, process_slots=4 * cores)
    hang = {"argv": ["sleep", "600"]}
    with Receiver() as receiver:
        hanging = {"url": receiver.url("/hang"), "timeout_seconds": 600}
        world.emit(0, *(job(n, "command", hang, tenant="hangs", seconds=600) for n in range(1, 200)))
        world.emit(0, *(job(n, "http", hanging, tenant="hangs", seconds=600) for n in range(200, 500)))
        others = [job(n, "command", {"argv": ["true"]}, tenant="other") for n in range(1000, 1010)]
        world.emit(0, *others, *(job(n, "log", {}, tenant="other") for n in range(1010, 1100)))
        ends = world.wait_for_ends(100, within=30)
        assert {number: kind for number, kind in ends.items() if number >= 1000} == dict.fromkeys(
            range(1000, 1100), "SUCCEEDED"
        )


def test_the_example_receiver_acts_once_for_all_attempts_of_a_run(world: World, installation: TestInstallation) -> None:
    """The code block of the docs, as it stands there but for its database and port."""
    text = (ROOT / "docs" / "handlers.md").read_text()
    example = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "run_app" in block)
    [table] = re.findall(r"# (CREATE TABLE .*)", example)
    with installation.connect() as connection:
        connection.execute(table)
    port = free_port()
    code = example.replace('"dbname=shop"', repr(installation.dsn)).replace("port=8000", f"port={port}")
    receiver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL)
    installation.processes.append(receiver)
    eventually(lambda: answers(port), within=30, says="the receiver is up")
    world.worker("w1")
    call = {"url": f"http://127.0.0.1:{port}/charge", "body": {"customer": "c", "cents": 5}}
    first = job(1, "http", call)
    world.emit(0, first, msgspec.structs.replace(first, attempt=2))
    eventually(lambda: len(world.jobs(Kind.SUCCEEDED)) == 2, within=30)
    said = [report_of(item.body).output for _, _, item in world.outcomes if item.kind == Kind.SUCCEEDED]
    assert sorted(json.loads(output or "")["new"] for output in said) == [False, True]
    with installation.connect() as connection:
        assert connection.execute("SELECT * FROM charges").fetchall() == [(KEY, "c", 5)]


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
