"""Workers on a real broker: what they say, what they commit, and what becomes of it when they die."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from cronstream.bodies import Policy, Report, Work, pack, report_of
from cronstream.records import Batch, Item, Kind, Source
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from workers.progress import Position, decode_metadata

SCHEDULED_US = 1_772_953_200_000_000
TOKEN = 41
QUICK = ["true"]
SLOW = ["sleep", "600"]


def item(job_id: int, handler: str, payload: Any, *, tenant: str = "acme") -> Item:
    work = Work(tenant, f"job-{job_id}", handler, json.dumps(payload).encode(), Policy())
    return Item(Kind.RUN, job_id, SCHEDULED_US, body=pack(work))


def log_item(job_id: int) -> Item:
    return item(job_id, "log", {})


def command_item(job_id: int, argv: list[str], *, tenant: str = "acme") -> Item:
    return item(job_id, "command", {"argv": argv}, tenant=tenant)


class World:
    """Admission's side and settlement's side of the workers."""

    def __init__(self, kafka: str, installation: TestInstallation) -> None:
        self.installation = installation
        self.topics = installation.topics
        self._producer = Producer({"bootstrap.servers": kafka})
        self._consumer = Consumer(
            {"bootstrap.servers": kafka, "group.id": f"{installation.name}-test", "enable.auto.commit": False}
        )
        topics = (self.topics.outcomes, self.topics.dead_letter)
        self._consumer.assign([TopicPartition(topic, number, 0) for topic in topics for number in range(4)])
        self._offsets: Counter[int] = Counter()
        self._group = Consumer(
            {"bootstrap.servers": kafka, "group.id": f"{installation.name}-workers", "enable.auto.commit": False}
        )
        self.outcomes: list[tuple[int, Batch, Item]] = []
        self.dead: list[Message] = []

    def close(self) -> None:
        self._consumer.close()
        self._group.close()

    def worker(self, node: str, **changes: object) -> subprocess.Popen[bytes]:
        changes = {"command_enabled": "true", "drain_seconds": 5, "process_slots": changes.get("slots", 20), **changes}
        return self.installation.start("workers", node, **changes)

    def emit(self, partition: int, *items: Item, source: int | None = None) -> None:
        """One record of attempts, as admit would emit it."""
        if source is None:
            source = self._offsets[partition]
            self._offsets[partition] += 1
        batch = Batch.of(items, token=TOKEN, published_at=9, source=Source(self.topics.triggers, partition, source))
        self.emit_raw(partition, batch.encode())

    def emit_raw(self, partition: int, value: bytes, **more: Any) -> None:
        self._producer.produce(self.topics.attempts, value, partition=partition, **more)
        assert self._producer.flush(10) == 0

    def read(self) -> None:
        """Read what is new."""
        while (message := self._consumer.poll(0.05)) is not None:
            assert message.error() is None, message.error()
            if message.topic() == self.topics.dead_letter:
                self.dead.append(message)
                continue
            batch = Batch.decode(message.value())
            number = message.partition()
            assert number is not None
            self.outcomes += [(number, batch, found) for found in batch.items()]

    def jobs(self, *kinds: Kind) -> list[int]:
        """The jobs of all outcomes of these kinds so far."""
        self.read()
        return sorted(found.job_id for _, _, found in self.outcomes if found.kind in kinds)

    def ends(self) -> dict[int, str]:
        """How each job ended. No job may end, or start, twice."""
        self.read()
        ended = [found for _, _, found in self.outcomes if found.kind.is_end]
        assert max(Counter(found.job_id for found in ended).values(), default=1) == 1
        assert max(Counter(self.jobs(Kind.STARTED)).values(), default=1) == 1
        return {found.job_id: found.kind.name for found in ended}

    def wait_for_ends(self, count: int, within: float = 30) -> dict[int, str]:
        return eventually(
            lambda: self.ends() if len(self.ends()) >= count else {}, within=within, says=f"{count} runs have ended"
        )

    def report(self, job_id: int, kind: Kind) -> Report:
        [body] = [found.body for _, _, found in self.outcomes if (found.job_id, found.kind) == (job_id, kind)]
        return report_of(body)

    def committed(self, partition: int) -> Position:
        [found] = self._group.committed([TopicPartition(self.topics.attempts, partition)], timeout=10)
        position = decode_metadata(found.offset, found.metadata)
        return position or Position(-1, -1)

    def ran(self, node: str) -> list[int]:
        """The jobs whose log handler ran on a worker."""
        lines = [line for line in self.installation.log_of(node).splitlines() if "A job ran" in line]
        return [int(re.findall(r" job_id=(\d+) ", line)[0]) for line in lines]

    def assignments(self, node: str) -> list[list[int]]:
        """The partitions of each assignment that a node was given, in order."""
        return [partitions for what, partitions in self._moves(node) if what == "assigned"]

    def held(self, node: str) -> set[int]:
        """What a node holds now, by its log."""
        held: set[int] = set()
        for what, partitions in self._moves(node):
            held = held.union(partitions) if what == "assigned" else held.difference(partitions)
        return held

    def _moves(self, node: str) -> list[tuple[str, list[int]]]:
        lines = re.findall(r"action=(assigned|revoked|lost) partitions=([\d,]+)", self.installation.log_of(node))
        return [(what, [int(number) for number in numbers.split(",")]) for what, numbers in lines]


@pytest.fixture
def world(kafka: str, installation: TestInstallation) -> Iterator[World]:
    made = World(kafka, installation)
    yield made
    made.close()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone, or going while it is read
        return False


def saying_its_pid(folder: Path, then: str) -> Callable[[int], list[str]]:
    return lambda job_id: ["sh", "-c", f"echo $$ > {folder}/{job_id}; {then}"]


def test_attempts_are_run_reported_and_committed(world: World) -> None:
    world.worker("w1")
    world.emit(0, log_item(1), log_item(2))
    world.emit(3, command_item(3, ["sh", "-c", "echo no; exit 4"]), item(4, "nosuch", {}))
    assert world.wait_for_ends(4) == {1: "SUCCEEDED", 2: "SUCCEEDED", 3: "FAILED", 4: "FAILED"}
    assert world.jobs(Kind.STARTED) == [1, 2, 3, 4]
    for partition, batch, found in world.outcomes:
        assert partition == (0 if found.job_id < 3 else 3)
        assert batch.token == TOKEN
        assert batch.source is not None
        assert batch.source.topic == world.topics.attempts
        assert (batch.source.partition, batch.source.offset) == (partition, 0)
    done, failed = world.report(1, Kind.SUCCEEDED), world.report(3, Kind.FAILED)
    assert (done.tenant, done.name, done.worker, done.published_at, done.work) == ("acme", "job-1", "w1", 9, None)
    assert done.started_at <= (done.finished_at or 0)
    assert (failed.error, failed.output) == ("exit code 4: no", "no\n")
    assert failed.work == command_item(3, ["sh", "-c", "echo no; exit 4"]).body
    eventually(lambda: world.committed(0).offset == 1 and world.committed(3).offset == 1, within=60)
    assert world.committed(0).sources == {(world.topics.triggers, 0): (0, 0)}
    assert world.committed(0).outcomes_from >= 2


def test_poison_is_set_aside_and_blocks_nothing(world: World) -> None:
    world.worker("w1")
    world.emit_raw(1, b"\xc1 no batch", key=b"k", headers=[("own", b"1")])
    world.emit(1, Item(Kind.RUN, 8, SCHEDULED_US, body=b"?"), log_item(1))
    assert world.wait_for_ends(2) == {1: "SUCCEEDED", 8: "FAILED"}
    eventually(lambda: world.committed(1).offset == 2, within=60)
    world.read()
    [dead] = world.dead
    assert (dead.key(), dead.value()) == (b"k", b"\xc1 no batch")
    headers = dict(dead.headers() or [])
    assert headers.pop("cronstream-error").startswith(b"not a batch")
    assert headers == {
        "own": b"1",
        "cronstream-reason": b"poison_record",
        "cronstream-stage": b"workers",
        "cronstream-topic": world.topics.attempts.encode(),
        "cronstream-partition": b"1",
        "cronstream-offset": b"0",
    }


def test_a_killed_workers_finished_runs_are_not_run_again_and_its_running_ones_are_lost(
    world: World, tmp_path: Path
) -> None:
    command = saying_its_pid(tmp_path, "sleep 600")
    quick = range(1, 21)
    slow = range(100, 110)  # Of 8 slots one tenant holds 6: four wait.
    first = world.worker("w1", slots=8)
    world.emit(0, *(command_item(job, command(job), tenant="slow") for job in slow), *map(log_item, quick))
    world.wait_for_ends(len(quick))
    running = eventually(lambda: sorted(tmp_path.iterdir()) if len(list(tmp_path.iterdir())) == 6 else [], within=60)
    pids = [int(path.read_text()) for path in running]
    first.send_signal(signal.SIGKILL)
    first.wait(60)
    eventually(lambda: not any(is_alive(pid) for pid in pids), within=60)

    for path in running:
        path.unlink()
    second = world.worker("w2", slots=8, drain_seconds=0)
    ends = world.wait_for_ends(len(quick) + 6)
    lost = {job for job, kind in ends.items() if kind == "LOST"}
    assert lost == {int(path.name) for path in running}
    report = world.report(min(lost), Kind.LOST)
    assert report.worker == "w1"
    assert report.started_at > SCHEDULED_US
    assert report.work is not None
    assert world.ran("w2") == []
    waiting = set(slow) - lost
    eventually(lambda: {int(path.name) for path in tmp_path.iterdir()} == waiting, within=60)

    second.terminate()
    assert second.wait(60) == 0
    ends = world.wait_for_ends(len(quick) + len(slow))
    assert {job for job, kind in ends.items() if kind == "LOST"} == set(slow)
    assert world.committed(0).offset == 1


def test_sigterm_finishes_what_runs_and_hands_back_what_waits(world: World) -> None:
    first = world.worker("w1", slots=2)
    world.emit(2, command_item(1, ["sleep", "4"]), command_item(2, ["sleep", "4"], tenant="b"))
    world.emit(2, command_item(3, QUICK))
    eventually(lambda: world.jobs(Kind.STARTED), within=60)
    first.terminate()
    assert first.wait(60) == 0
    assert "action=down" in world.installation.log_of("w1")
    assert set(world.ends().values()) == {"SUCCEEDED"}
    handed_back = {1, 2, 3} - world.ends().keys()
    assert 3 in handed_back

    world.worker("w2", slots=2)
    assert world.wait_for_ends(3, within=60) == dict.fromkeys((1, 2, 3), "SUCCEEDED")
    eventually(lambda: world.committed(2).offset == 2, within=60)


def test_sigterm_cuts_off_what_outlasts_the_drain(world: World, tmp_path: Path) -> None:
    worker = world.worker("w1", drain_seconds=0.5)
    world.emit(0, command_item(1, saying_its_pid(tmp_path, "sleep 600")(1)), log_item(2))
    eventually(lambda: list(tmp_path.iterdir()), within=60)
    world.wait_for_ends(1)
    worker.terminate()
    assert worker.wait(60) == 0
    assert world.wait_for_ends(2) == {1: "LOST", 2: "SUCCEEDED"}
    assert not is_alive(int((tmp_path / "1").read_text()))
    assert world.committed(0).offset == 1


def test_a_second_emission_runs_nothing_not_even_on_another_worker(world: World) -> None:
    first = world.worker("w1")
    world.emit(0, log_item(1), source=5)
    world.emit(0, log_item(1), source=5)
    world.wait_for_ends(1)
    eventually(lambda: world.committed(0).offset == 2, within=60)
    first.terminate()
    assert first.wait(60) == 0
    world.emit(0, log_item(1), source=5)
    world.emit(0, log_item(2), source=6)
    world.worker("w2")
    assert world.wait_for_ends(2) == {1: "SUCCEEDED", 2: "SUCCEEDED"}
    eventually(lambda: world.committed(0).offset == 4, within=60)
    assert world.ran("w1") == [1]
    assert world.ran("w2") == [2]


def test_workers_come_and_go_and_every_attempt_runs_once(world: World) -> None:
    world.worker("w1", slots=20)
    jobs = iter(range(1, 10_000))

    def load(records: int) -> None:
        for number in range(records):
            quick = [log_item(next(jobs)) for _ in range(10)]
            world.emit(number % 4, *quick, command_item(next(jobs), ["sleep", "0.3"], tenant=f"t{number}"))

    load(8)
    eventually(lambda: len(world.jobs(Kind.STARTED)) > 10, within=60)
    second = world.worker("w2", slots=20)
    load(8)
    eventually(lambda: "action=taken_over" in world.installation.log_of("w2"), within=30)
    load(24)
    eventually(lambda: world.ran("w2"), within=60)
    third = world.worker("w3", slots=20)
    load(8)
    second.terminate()
    load(8)
    assert second.wait(60) == 0
    eventually(lambda: "action=up" in world.installation.log_of("w3"), within=60)
    third.terminate()
    load(8)
    assert third.wait(60) == 0
    count = next(jobs) - 1
    ends = world.wait_for_ends(count, within=60)
    assert Counter(ends.values()) == {"SUCCEEDED": count}
    ran = Counter(job for node in ("w1", "w2", "w3") for job in world.ran(node))
    assert set(ran.values()) == {1}


def test_a_worker_that_stood_still_and_was_replaced_starts_nothing_more(world: World) -> None:
    first = world.worker("w1", slots=2, drain_seconds=1)
    waiting = [command_item(job, QUICK, tenant="b") for job in range(10, 30)]
    world.emit(0, command_item(1, SLOW), command_item(2, SLOW, tenant="b"), *waiting)
    eventually(lambda: len(world.jobs(Kind.STARTED)) == 2, within=60)
    first.send_signal(signal.SIGSTOP)
    world.worker("w2", slots=10)
    ends = world.wait_for_ends(22)
    assert ends == {1: "LOST", 2: "LOST", **dict.fromkeys(range(10, 30), "SUCCEEDED")}
    first.send_signal(signal.SIGCONT)
    eventually(lambda: "action=lost" in world.installation.log_of("w1"), within=60)
    world.emit(0, log_item(31))
    world.emit(1, log_item(32))
    ends = world.wait_for_ends(24)
    assert (ends[31], ends[32]) == ("SUCCEEDED", "SUCCEEDED")
    ran = Counter(job for node in ("w1", "w2") for job in world.ran(node))
    assert ran == {31: 1, 32: 1}


def test_a_broker_that_is_away_does_not_keep_a_worker_from_leaving(world: World) -> None:
    worker = world.worker("w1", kafka="127.0.0.1:1", session_timeout_seconds=6)
    eventually(lambda: "action=client_error" in world.installation.log_of("w1"), within=60)
    assert worker.poll() is None
    worker.terminate()
    assert worker.wait(60) == 0


def test_a_worker_that_is_back_within_its_session_gets_its_partitions_and_nothing_moves(world: World) -> None:
    """A rolling restart of two workers under load: every attempt runs once, no partition changes hands."""
    nodes = {node: world.worker(node, session_timeout_seconds=20) for node in ("w1", "w2")}
    eventually(lambda: len(world.held("w1")) == len(world.held("w2")) == 2, within=60, says="each holds two")
    held = {node: world.held(node) for node in nodes}
    begun = {node: len(world.assignments(node)) for node in nodes}
    jobs = iter(range(1, 10_000))

    def load() -> None:
        for partition in range(4):
            quick = [log_item(next(jobs)) for _ in range(10)]
            world.emit(partition, *quick, command_item(next(jobs), ["sleep", "0.3"], tenant=f"t{partition}"))

    for node in ("w1", "w2"):
        load()
        nodes[node].terminate()
        load()
        assert nodes[node].wait(60) == 0
        load()
        world.worker(node, session_timeout_seconds=20)
        eventually(lambda node=node: len(world.assignments(node)) > begun[node], within=60)  # type: ignore[misc]
        load()
    count = next(jobs) - 1
    assert Counter(world.wait_for_ends(count, within=60).values()) == {"SUCCEEDED": count}
    for node in nodes:
        assert len(world.assignments(node)) == begun[node] + 1
        assert world.held(node) == held[node]


def test_of_two_workers_of_one_name_the_older_leaves_and_says_why(world: World) -> None:
    first = world.worker("w1")
    eventually(lambda: world.assignments("w1"), within=60)
    world.worker("w1")
    assert first.wait(60) == 1
    assert "another worker calls itself w1" in world.installation.log_of("w1")


ATTEMPTS = range(1, 6)
DEATHS: dict[str, tuple[set[int], set[str]]] = {
    # Where the worker dies: how many of five runs it has executed, and how those may end that it had taken.
    "work.taken": ({0}, {"SUCCEEDED"}),
    "work.starting": ({0}, {"SUCCEEDED", "LOST"}),
    "work.started": ({0}, {"LOST"}),
    "work.ran": ({1}, {"LOST"}),
    "work.ending": ({5}, {"SUCCEEDED", "LOST"}),
    "work.ended": ({5}, {"SUCCEEDED"}),
    # The second commit: the first one, of where it began, may come before there is anything to run.
    "work.committed:2": ({0, 5}, {"SUCCEEDED", "LOST"}),
}


@pytest.mark.parametrize("point", DEATHS)
def test_a_worker_may_die_between_any_two_of_its_effects(world: World, point: str) -> None:
    """What had not started is run by the next one, what was in flight is lost, what had ended stays ended."""
    executed, ends = DEATHS[point]
    first = world.worker("w1", fault_point=point)
    world.emit(0, *map(log_item, ATTEMPTS))
    assert first.wait(60) == -signal.SIGKILL
    before = len(world.ran("w1"))
    assert before in executed
    world.worker("w1")
    found = world.wait_for_ends(len(ATTEMPTS))
    assert set(found) == set(ATTEMPTS)
    assert set(found.values()) <= ends
    assert max(Counter(world.ran("w1")).values(), default=1) == 1
    lost = {number for number, kind in found.items() if kind == "LOST"}
    assert len(world.ran("w1")) - before == (len(ATTEMPTS) - len(lost) if before == 0 else 0)
    eventually(lambda: world.committed(0).offset == 1, within=60)


@pytest.mark.parametrize("point", ["work.ending", "work.ended"])
def test_a_worker_may_die_while_it_says_what_its_predecessor_lost(world: World, point: str) -> None:
    first = world.worker("w1", fault_point="work.started")
    world.emit(0, *map(log_item, ATTEMPTS))
    assert first.wait(60) == -signal.SIGKILL
    second = world.worker("w1", fault_point=point)
    assert second.wait(60) == -signal.SIGKILL
    world.worker("w1")
    assert world.wait_for_ends(len(ATTEMPTS)) == dict.fromkeys(ATTEMPTS, "LOST")
    eventually(lambda: world.committed(0).offset == 1, within=60)
    assert world.ends() == dict.fromkeys(ATTEMPTS, "LOST")
    assert world.ran("w1") == []
