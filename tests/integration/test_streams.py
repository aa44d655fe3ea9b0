"""The streams process on real servers: triggers in, attempts and status out, through its death."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from cronstream.clock import SECOND, SystemClock, iso
from cronstream.records import Batch, Item, Kind, Source
from cronstream.topics import partition_of
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from tests.unit.streams.making import NOON, cancel, outcome, outcomes, run, skip, triggers

PARTITIONS = 4
JOBS = {
    partition: [job for job in range(1, 900) if partition_of(job, PARTITIONS) == partition]
    for partition in range(PARTITIONS)
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Streams:
    """A streams process and its status pages."""

    process: subprocess.Popen[bytes]
    port: int

    def get(self, path: str) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 503 and error.headers["Retry-After"] is None:
                raise AssertionError("503 without Retry-After") from error
            return error.code, json.load(error)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return 0, {}

    def owned(self) -> int:
        code, health = self.get("/health")
        return len({lane["partition"] for lane in health["partitions"]}) if code == 200 else 0


def start(installation: TestInstallation, node: str, **changes: object) -> Streams:
    port = free_port()
    return Streams(installation.start("streams", node, status_port=port, **changes), port)


def at_work(installation: TestInstallation, node: str = "s1", **changes: object) -> Streams:
    streams = start(installation, node, **changes)
    eventually(lambda: streams.owned() == PARTITIONS, within=60, says=f"{node} owns all partitions")
    return streams


@dataclass
class Reader:
    """Everything committed on one topic so far: (partition, offset, batch or bytes, headers)."""

    consumer: Consumer
    records: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, installation: TestInstallation, topic: str, partitions: int = PARTITIONS) -> Reader:
        consumer = Consumer(
            {
                "bootstrap.servers": installation.endpoints.kafka,
                "group.id": f"read-{topic}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        return cls(consumer)

    def poll(self) -> list[Any]:
        for message in self.consumer.consume(1000, timeout=0.05):
            assert message.error() is None
            self.records.append(message)
        return self.records

    def batches(self) -> list[Batch]:
        return [Batch.decode(message.value()) for message in self.poll()]

    def items(self) -> list[Item]:
        return [item for batch in self.batches() for item in batch.items()]


@pytest.fixture
def attempts(installation: TestInstallation) -> Iterator[Reader]:
    reader = Reader.of(installation, installation.topics.attempts)
    yield reader
    reader.consumer.close()


@pytest.fixture
def dead(installation: TestInstallation) -> Iterator[Reader]:
    reader = Reader.of(installation, installation.topics.dead_letter)
    yield reader
    reader.consumer.close()


class Publisher:
    """Produces batches; transactional as the coordinator is."""

    def __init__(self, installation: TestInstallation, name: str = "publisher") -> None:
        self.installation = installation
        self.producer = Producer(
            {
                "bootstrap.servers": installation.endpoints.kafka,
                "transactional.id": f"{installation.name}-{name}",
                "linger.ms": 2,
            }
        )
        self.producer.init_transactions(30)

    def publish(self, topic: str, batches: Iterable[tuple[int, Batch | bytes]], abort: bool = False) -> None:
        self.producer.begin_transaction()
        for partition, batch in batches:
            value = batch if isinstance(batch, bytes) else batch.encode()
            self.producer.produce(topic, value, partition=partition)
        if abort:
            self.producer.flush(10)
            self.producer.abort_transaction(30)
        else:
            self.producer.commit_transaction(30)

    def triggers(self, *batches: tuple[int, Batch | bytes], abort: bool = False) -> None:
        self.publish(self.installation.topics.triggers, batches, abort)

    def outcomes(self, *items: Item) -> None:
        by_partition = defaultdict(list)
        for item in items:
            by_partition[partition_of(item.job_id, PARTITIONS)].append(item)
        self.publish(
            self.installation.topics.outcomes,
            [(partition, outcomes(group)) for partition, group in by_partition.items()],
        )


@pytest.fixture
def publisher(installation: TestInstallation) -> Publisher:
    return Publisher(installation)


def test_triggers_become_attempts_once_and_the_rest_is_accounted_for(
    installation: TestInstallation, publisher: Publisher, attempts: Reader, dead: Reader
) -> None:
    streams = at_work(installation)
    one, two, three, four = JOBS[0][:4]
    publisher.triggers((0, triggers([run(one), run(two)], token=5)))
    publisher.triggers((0, triggers([run(one), run(one)], token=5)), (0, b"not a batch"))
    publisher.triggers((0, triggers([run(three)], token=4)))
    publisher.triggers((0, triggers([skip(three), run(four), cancel(two)], token=6)))
    eventually(lambda: len(attempts.items()) == 3, within=60)
    assert [item.job_id for item in attempts.items()] == [one, two, four]
    assert [batch.source for batch in attempts.batches()] == [
        Source(installation.topics.triggers, 0, 0, 0),
        Source(installation.topics.triggers, 0, 7, 0),
    ]
    eventually(lambda: len(dead.poll()) == 2, within=60)
    reasons = {dict(letter.headers())["cronstream-reason"]: letter for letter in dead.records}
    assert reasons[b"poison_record"].value() == b"not a batch"
    assert Batch.decode(reasons[b"stale_token"].value()).job_id.tolist() == [three]
    eventually(lambda: streams.get(f"/jobs/{two}")[0] == 200, within=60)
    assert streams.get(f"/jobs/{three}")[1].get("state") == "skipped"
    assert streams.get(f"/jobs/{two}")[1].get("state") == "deleted"
    stats = streams.get("/stats")[1]
    assert {
        name: stats[name]
        for name in ("admitted", "published_twice", "refused_old_leader", "unreadable", "skipped", "jobs_deleted")
    } == {
        "admitted": 3,
        "published_twice": 2,
        "refused_old_leader": 1,
        "unreadable": 1,
        "skipped": 1,
        "jobs_deleted": 1,
    }


def test_what_a_transaction_took_back_is_never_admitted(
    installation: TestInstallation, publisher: Publisher, attempts: Reader
) -> None:
    at_work(installation)
    for number in range(10):
        publisher.triggers((1, triggers([run(JOBS[1][number])])), abort=number % 2 == 0)
    eventually(lambda: len(attempts.items()) >= 5, within=60)
    publisher.triggers((1, triggers([run(JOBS[1][99])])))
    eventually(lambda: attempts.items()[-1].job_id == JOBS[1][99], within=60)
    assert [item.job_id for item in attempts.items()] == [*JOBS[1][1:10:2], JOBS[1][99]]


def test_status_follows_the_outcomes(installation: TestInstallation, publisher: Publisher) -> None:
    streams = at_work(installation)
    job = JOBS[2][0]
    assert streams.get(f"/jobs/{job}")[0] == 404
    publisher.outcomes(outcome(Kind.STARTED, job))
    eventually(lambda: streams.get(f"/jobs/{job}")[1].get("state") == "running", within=60)
    assert streams.get("/stats")[1]["running"] == 1
    publisher.outcomes(outcome(Kind.FAILED, job, error="exit 3"))
    eventually(lambda: streams.get(f"/jobs/{job}")[1].get("state") == "failed", within=60)
    code, seen = streams.get(f"/jobs/{job}/runs/{iso(NOON)}")
    assert (code, seen["state"], seen["error"], seen["attempt"]) == (200, "failed", "exit 3", 1)
    assert streams.get(f"/jobs/{job}/runs/{iso(NOON + SECOND)}")[0] == 404
    assert streams.get(f"/jobs/{job}/runs/yesterday")[0] == 400
    assert streams.get("/jobs/99999999999999999999999")[0] == 400


def test_a_stopped_process_leaves_at_once_and_its_successor_goes_on(
    installation: TestInstallation, publisher: Publisher, attempts: Reader
) -> None:
    # Were it not to leave the group, the successor would wait for the end of its session.
    first = at_work(installation, session_timeout_seconds=600)
    publisher.triggers((0, triggers([run(JOBS[0][0])])))
    eventually(lambda: len(attempts.items()) == 1, within=60)
    first.process.terminate()
    assert first.process.wait(60) == 0
    at_work(installation, "s2")
    publisher.triggers((0, triggers([run(JOBS[0][0]), run(JOBS[0][1])])))
    eventually(lambda: JOBS[0][1] in [item.job_id for item in attempts.items()], within=60)
    assert [item.job_id for item in attempts.items()] == JOBS[0][:2]
    assert [batch.source.offset for batch in attempts.batches() if batch.source] == [0, 2]


def test_killed_under_load_nothing_is_lost_and_each_run_has_one_source(
    installation: TestInstallation, publisher: Publisher, attempts: Reader
) -> None:
    """NoRunLost and OneRunPerScheduledTime through SIGKILLs; the last one moves to an empty machine."""
    over = threading.Event()
    seconds = 0

    def load() -> None:
        nonlocal seconds
        while not over.is_set():
            batches = [
                (partition, triggers([run(job, NOON + seconds * SECOND) for job in JOBS[partition][:20]], token=3))
                for partition in range(PARTITIONS)
            ]
            # Every batch is published twice, as after a takeover that knows too little.
            publisher.triggers(*batches, *batches)
            seconds += 1
            SystemClock().sleep(0.05)

    loading = threading.Thread(target=load)
    loading.start()
    nodes = ["s1", "s1", "s1", "s2"]
    for node in nodes:
        streams = start(installation, node)
        before = len(attempts.batches())
        eventually(lambda before=before: len(attempts.batches()) > before, within=60)  # type: ignore[misc]
        SystemClock().sleep(1.3)
        streams.process.send_signal(signal.SIGKILL)
        streams.process.wait(60)
        check_committed_has_its_output(installation, attempts)
    over.set()
    loading.join(60)
    survivor = at_work(installation, "s3")
    wanted = {(job, NOON + second * SECOND, 0) for second in range(seconds) for p in JOBS for job in JOBS[p][:20]}
    eventually(lambda: not wanted - {item.run for item in attempts.items()}, within=60, every=1.0)
    eventually(lambda: lag(installation) == 0, within=60)
    sources: dict[tuple[int, int, int], set[Source | None]] = defaultdict(set)
    for batch in attempts.batches():
        for item in batch.items():
            sources[item.run].add(batch.source)
    assert set(sources) == wanted
    assert {run: found for run, found in sources.items() if len(found) != 1} == {}
    assert survivor.process.poll() is None


def committed(installation: TestInstallation) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": installation.endpoints.kafka, "group.id": f"{installation.name}-streams"})
    try:
        places = [TopicPartition(installation.topics.triggers, number) for number in range(PARTITIONS)]
        return {place.partition: max(place.offset, 0) for place in consumer.committed(places, timeout=10)}
    finally:
        consumer.close()


def lag(installation: TestInstallation) -> int:
    """Records of triggers that are not committed; the transaction's marker behind them is none."""
    reader = Reader.of(installation, installation.topics.triggers)
    done = committed(installation)
    try:
        eventually(lambda: reader.poll() and len(reader.records) == len(reader.poll()), within=60)
        return sum(message.offset() >= done[message.partition()] for message in reader.records)
    finally:
        reader.consumer.close()


def check_committed_has_its_output(installation: TestInstallation, attempts: Reader) -> None:
    """Every first publication below the committed offset has its attempts record."""
    done = committed(installation)
    reader = Reader.of(installation, installation.topics.triggers)
    eventually(lambda: reader.poll() and len(reader.records) == len(reader.poll()), within=60)
    below = [message for message in reader.records if message.offset() < done[message.partition()]]
    reader.consumer.close()
    runs = {item.run for message in below for item in Batch.decode(message.value()).items()}
    eventually(lambda: {item.run for item in attempts.items()} >= runs, within=60)


def test_processes_come_and_go_and_every_answer_is_right_or_503(
    installation: TestInstallation, publisher: Publisher
) -> None:
    """Counts only grow: an answer that is older than one given before would be a wrong answer."""
    first = at_work(installation, "s1")
    jobs = [JOBS[partition][0] for partition in range(PARTITIONS)]
    acknowledged = dict.fromkeys(jobs, 0)
    stop = threading.Event()
    wrong: list[str] = []
    answers: dict[int, int] = defaultdict(int)

    def settle_runs() -> None:
        minute = 0
        while not stop.is_set():
            publisher.outcomes(*(outcome(Kind.SUCCEEDED, job, NOON + minute * 60 * SECOND) for job in jobs))
            minute += 1
            for job in jobs:
                acknowledged[job] = minute
            SystemClock().sleep(0.05)

    processes = {"s1": first}

    def ask() -> None:
        seen = dict.fromkeys(jobs, 0)
        while not stop.is_set():
            for streams in list(processes.values()):
                for job in jobs:
                    code, body = streams.get(f"/jobs/{job}")
                    answers[code] += 1
                    if code == 200:
                        count = body["counts"]["succeeded"]
                        if count < seen[job] or count > acknowledged[job] + 1:
                            wrong.append(f"job {job}: {count} after {seen[job]}, {acknowledged[job]} published")
                        seen[job] = max(seen[job], count)
                    elif code == 404 and seen[job]:
                        wrong.append(f"job {job}: unknown after {seen[job]}")
                    elif code not in (0, 404, 503):
                        wrong.append(f"job {job}: {code} {body}")
                code, body = streams.get("/tenants/acme/jobs?state=succeeded")
                answers[code] += 1
                if code == 200:
                    listed = {one["job_id"]: one["counts"]["succeeded"] for one in body["jobs"]}
                    for job in jobs:
                        count = listed.get(job, 0)
                        if not seen[job] <= count <= acknowledged[job] + 1:
                            wrong.append(f"job {job} is listed with {count} after {seen[job]}")
                        seen[job] = max(seen[job], count)
                elif code not in (0, 503):
                    wrong.append(f"the list: {code} {body}")

    threads = [threading.Thread(target=settle_runs), threading.Thread(target=ask)]
    for thread in threads:
        thread.start()
    try:
        processes["s2"] = second = start(installation, "s2")
        eventually(lambda: first.owned() == second.owned() == PARTITIONS // 2, within=30)
        eventually(lambda: all(second.get(f"/jobs/{job}")[0] == 200 for job in jobs), within=60, says="s2 forwards")
        eventually(lambda: all(first.get(f"/jobs/{job}")[0] == 200 for job in jobs), within=60, says="s1 forwards")
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(60)
        del processes["s1"]
        eventually(lambda: second.owned() == PARTITIONS, within=30)
        processes["s3"] = third = start(installation, "s3")
        eventually(lambda: third.owned() == PARTITIONS // 2, within=30)
        del processes["s2"]
        second.process.terminate()
        second.process.wait(60)
        eventually(lambda: third.owned() == PARTITIONS, within=30)
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
    assert wrong == []
    assert answers[200] > 50
    for job in jobs:
        eventually(
            lambda job=job: third.get(f"/jobs/{job}")[1].get("counts", {}).get("succeeded") == acknowledged[job],  # type: ignore[misc]
            within=60,
        )


def test_a_process_that_slept_through_its_session_answers_and_does_nothing(
    installation: TestInstallation, publisher: Publisher, attempts: Reader
) -> None:
    sleeper = at_work(installation, "s1")
    job = JOBS[0][0]
    publisher.outcomes(outcome(Kind.SUCCEEDED, job))
    eventually(lambda: sleeper.get(f"/jobs/{job}")[0] == 200, within=60)
    sleeper.process.send_signal(signal.SIGSTOP)
    successor = start(installation, "s2")
    eventually(lambda: successor.owned() == PARTITIONS, within=30)
    publisher.outcomes(outcome(Kind.FAILED, job, NOON + SECOND))
    eventually(lambda: successor.get(f"/jobs/{job}")[1].get("state") == "failed", within=60)
    sleeper.process.send_signal(signal.SIGCONT)
    for _ in range(50):
        code, body = sleeper.get(f"/jobs/{job}")
        assert code in (0, 503) or body["state"] == "failed"
    publisher.triggers((0, triggers([run(job)])))
    eventually(lambda: attempts.items() != [], within=60)
    eventually(lambda: sleeper.owned() == successor.owned() == PARTITIONS // 2, within=30, says="the sleeper is back")
    assert len({batch.source for batch in attempts.batches()}) == 1


def test_a_missing_topic_is_named(installation: TestInstallation) -> None:
    process = installation.start("streams", "s1", installation="nowhere", status_port=free_port())
    assert process.wait(60) != 0
    assert "nowhere.triggers" in installation.log_of("s1")
