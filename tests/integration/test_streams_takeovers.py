"""Streams processes that come, go and die on real servers: nothing is lost, and no answer is wrong."""

from __future__ import annotations

import signal
import threading
from collections import defaultdict
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from cronstream.clock import SECOND, SystemClock
from cronstream.records import Batch, Kind, Source
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from tests.support.streams import JOBS, PARTITIONS, Publisher, Reader, at_work, start
from tests.unit.streams.making import NOON, outcome, run, triggers


@pytest.fixture
def attempts(installation: TestInstallation) -> Iterator[Reader]:
    reader = Reader.of(installation, installation.topics.attempts)
    yield reader
    reader.consumer.close()


@pytest.fixture
def publisher(installation: TestInstallation) -> Publisher:
    return Publisher(installation)


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
