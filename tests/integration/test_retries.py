"""Retries, dead letters and overlap on real servers: streams, mover and worker through whole stories."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Producer

from cronstream import pulse
from cronstream.bodies import Policy, Work, pack, skip_of
from cronstream.clock import SECOND, SystemClock
from cronstream.records import Batch, Item, Kind
from cronstream.settings import ConsumerSettings
from streams import mover
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from tests.support.streams import JOBS, PARTITIONS, Publisher, Reader, at_work
from tests.unit.streams.making import NOON, cancel, outcome, run, triggers, work

STREAMS_POINTS = [
    f"{stage}.{point}"
    for stage in ("admit", "settle")
    for point in ("decided", "sent", "logged", "acknowledged", "stored")
]
MOVER_POINTS = ["mover.begin", "mover.produced", "mover.offsets", "mover.committed"]
AT_ONCE = {"backoff_seconds": 0.0}

Try = tuple[int, int, int, int]


@pytest.fixture
def publisher(installation: TestInstallation) -> Publisher:
    return Publisher(installation)


@pytest.fixture
def attempts(installation: TestInstallation) -> Iterator[Reader]:
    reader = Reader.of(installation, installation.topics.attempts)
    yield reader
    reader.consumer.close()


@pytest.fixture
def ended(installation: TestInstallation) -> Iterator[Reader]:
    reader = Reader.of(installation, installation.topics.outcomes)
    yield reader
    reader.consumer.close()


@pytest.fixture
def dead(installation: TestInstallation) -> Iterator[Reader]:
    reader = Reader.of(installation, installation.topics.dead_letter)
    yield reader
    reader.consumer.close()


def moving(installation: TestInstallation, node: str = "m1", **changes: object) -> subprocess.Popen[bytes]:
    """A mover that has its partitions."""
    process = installation.start("streams.mover", node, **changes)
    eventually(lambda: "action=assigned" in installation.log_of(node), within=60, says=f"{node} has partitions")
    return process


def failed(job_id: int, attempt: int = 1, **policy: object) -> Item:
    """A failure of just now; tried again without jitter."""
    ended_us = SystemClock().wall_us()
    body = work(**{"jitter": "none", **policy})
    return outcome(Kind.FAILED, job_id, ended_us - 2 * SECOND, attempt, "no", body)


def run_by_a_worker(batches: Iterable[tuple[int, Batch]]) -> list[Try]:
    """What a worker would start: records in order, second emissions dropped by their source."""
    highest: dict[tuple[str, int], tuple[int, int]] = {}
    tries: list[Try] = []
    for _, batch in batches:
        source = batch.source
        assert source is not None
        mark = (source.offset, source.part)
        if mark > highest.get((source.topic, source.partition), (-1, -1)):
            highest[source.topic, source.partition] = mark
            tries += [(*item.run, item.attempt) for item in batch.items()]
    return tries


def started(attempts: Reader) -> list[Try]:
    attempts.poll()
    return run_by_a_worker((message.partition(), Batch.decode(message.value())) for message in attempts.records)


def test_a_retry_starts_not_before_its_instant_and_within_a_second_after(
    installation: TestInstallation, publisher: Publisher, attempts: Reader
) -> None:
    at_work(installation)
    moving(installation)
    delays = {JOBS[0][0]: 0.0, JOBS[1][0]: 0.4, JOBS[2][0]: 1.7, JOBS[3][0]: 5.3}
    wanted = {}
    for job, delay in delays.items():
        item = failed(job, backoff_seconds=delay, max_backoff_seconds=60.0)
        wanted[job] = item.scheduled_us + round((2 + delay) * SECOND)
        publisher.outcomes(item)
    eventually(lambda: len(attempts.items()) == len(delays), within=40)
    for message, batch in zip(attempts.records, attempts.batches(), strict=True):
        (item,) = batch.items()
        late = message.timestamp()[1] / 1000 - wanted[item.job_id] / SECOND
        assert (item.kind, item.attempt) == (Kind.RUN, 2)
        assert -0.001 <= late <= 1, f"{delays[item.job_id]} s: {late} s late"


def test_a_job_that_fails_is_tried_again_and_then_a_dead_letter(
    installation: TestInstallation, publisher: Publisher, attempts: Reader, dead: Reader
) -> None:
    streams = at_work(installation)
    moving(installation)
    installation.start("workers", "w1", command_enabled=True)
    job = JOBS[1][0]
    policy = Policy(max_attempts=3, backoff_seconds=0.5, jitter="none")
    body = pack(Work("acme", "report", "command", json.dumps({"argv": ["false"]}).encode(), policy))
    publisher.triggers((1, triggers([Item(Kind.RUN, job, NOON, body=body)])))
    (letter,) = eventually(dead.poll, within=60)
    headers = {name: value.decode() for name, value in letter.headers()}
    assert headers["cronstream-reason"] == "exhausted"
    assert (headers["cronstream-job-id"], headers["cronstream-attempts"]) == (str(job), "3")
    assert (headers["cronstream-tenant"], headers["cronstream-name"]) == ("acme", "report")
    assert headers["cronstream-key"] == f"{job}-{NOON}-0"
    assert [item.attempt for item in attempts.items()] == [1, 2, 3]
    assert {item.idempotency_key for item in attempts.items()} == {headers["cronstream-key"]}
    assert streams.get(f"/jobs/{job}")[1]["counts"]["failed"] == 3


def test_a_retry_of_a_deleted_job_ends_as_cancelled(
    installation: TestInstallation, publisher: Publisher, attempts: Reader, ended: Reader
) -> None:
    streams = at_work(installation)
    job = JOBS[2][0]
    publisher.outcomes(failed(job, backoff_seconds=0.8))
    publisher.triggers((2, triggers([cancel(job)])))
    eventually(lambda: streams.get(f"/jobs/{job}")[1].get("state") == "deleted", within=60)
    moving(installation)
    cancelled = eventually(lambda: [item for item in ended.items() if item.kind is Kind.CANCELLED], within=60)
    assert [(item.job_id, item.attempt) for item in cancelled] == [(job, 2)]
    assert attempts.items() == []


def test_queued_runs_wait_for_their_turn_and_runs_alone_are_skipped(
    installation: TestInstallation, publisher: Publisher, attempts: Reader, ended: Reader
) -> None:
    streams = at_work(installation, overlap_queue_limit=2)
    queued, alone = JOBS[3][:2]
    times = [NOON + number * SECOND for number in range(4)]
    runs = [run(queued, when, kind=Kind.RUN_QUEUED) for when in times]
    publisher.triggers((3, triggers([*runs, *(run(alone, when, kind=Kind.RUN_ALONE) for when in times[:2])])))
    eventually(lambda: len(attempts.items()) == 2, within=60)
    eventually(lambda: streams.get(f"/jobs/{queued}")[1].get("waiting") == 2, within=60)
    skipped = eventually(lambda: [item for item in ended.items() if item.kind is Kind.SKIPPED], within=60)
    assert sorted((item.job_id, item.scheduled_us, skip_of(item.body).reason) for item in skipped) == sorted(
        [(queued, times[3], "queue full"), (alone, times[1], "overlap")]
    )
    streams.process.send_signal(signal.SIGKILL)
    streams.process.wait(60)
    at_work(installation, overlap_queue_limit=2)
    for number, when in enumerate(times[:3]):
        assert [when for job, when, *_ in started(attempts) if job == queued] == times[: number + 1]
        publisher.outcomes(outcome(Kind.SUCCEEDED, queued, when))
        if number < 2:
            eventually(lambda number=number: len(started(attempts)) == 3 + number, within=60)  # type: ignore[misc]
    publisher.outcomes(outcome(Kind.SUCCEEDED, alone, times[0]))
    publisher.triggers((3, triggers([run(alone, times[3], kind=Kind.RUN_ALONE)])))
    eventually(lambda: started(attempts)[-1] == (alone, times[3], 0, 1), within=60)


def test_a_thousand_triggers_twice_and_a_thousand_of_an_old_leader_are_a_thousand_attempts(
    installation: TestInstallation, publisher: Publisher, attempts: Reader, dead: Reader
) -> None:
    at_work(installation)
    halves = [JOBS[partition][:125] for partition in range(PARTITIONS)]
    for second in range(2):
        for again in range(2):
            publisher.triggers(
                *(
                    (partition, triggers([run(job, NOON + second * SECOND) for job in jobs], 7, NOON + again))
                    for partition, jobs in enumerate(halves)
                )
            )
    for second in range(2, 4):
        publisher.triggers(
            *(
                (partition, triggers([run(job, NOON + second * SECOND) for job in jobs], 6))
                for partition, jobs in enumerate(halves)
            )
        )
    eventually(lambda: sum(len(Batch.decode(letter.value())) for letter in dead.poll()) == 1000, within=60)
    tries = eventually(lambda: found if len(found := started(attempts)) >= 1000 else None, within=60)
    wanted = {(job, NOON + second * SECOND, 0, 1) for jobs in halves for job in jobs for second in range(2)}
    assert Counter(tries) == Counter(dict.fromkeys(wanted, 1))


def test_a_streams_process_may_die_between_any_two_effects(
    installation: TestInstallation, publisher: Publisher, attempts: Reader, dead: Reader
) -> None:
    """Each life takes up what the one before left, and ends at the next point."""
    wanted: Counter[Try] = Counter()
    given_up = set()
    for number, point in enumerate([*STREAMS_POINTS, None]):
        one, two, three = JOBS[0][3 * number : 3 * number + 3]
        publisher.triggers((0, triggers([run(one, kind=Kind.RUN_QUEUED), run(two)])))
        retried, last = failed(two, **AT_ONCE), failed(three, max_attempts=1)
        now_us = SystemClock().wall_us()
        batch = Batch.of([retried, last], token=1, published_at=now_us)
        publisher.publish(installation.topics.outcomes, [(0, batch)])
        wanted.update([(one, NOON, 0, 1), (two, NOON, 0, 1), (*retried.run, 2)])
        given_up.add(last.idempotency_key)
        fault = {} if point is None else {"fault_point": point}
        process = installation.start("streams", "s1", status_port=0, **fault)
        if point is not None:
            assert process.wait(60) == -signal.SIGKILL, point
    eventually(lambda: Counter(started(attempts)) >= wanted, within=60)
    assert Counter(started(attempts)) == wanted
    keys = {dict(letter.headers())["cronstream-key"].decode() for letter in dead.poll()}
    assert keys == given_up


def test_a_mover_may_die_between_any_two_effects(
    installation: TestInstallation, publisher: Publisher, attempts: Reader
) -> None:
    at_work(installation)
    due = Reader.of(installation, installation.topics.retry_due)
    wanted: Counter[Try] = Counter()
    for number, point in enumerate([*MOVER_POINTS, None]):
        retried = [failed(JOBS[partition][number], backoff_seconds=0.3) for partition in range(PARTITIONS)]
        publisher.outcomes(*retried)
        wanted.update((*item.run, 2) for item in retried)
        fault = {} if point is None else {"fault_point": point}
        process = installation.start("streams.mover", "m1", **fault)
        if point is not None:
            assert process.wait(60) == -signal.SIGKILL, point
    eventually(lambda: Counter(started(attempts)) >= wanted, within=60)
    handed_on = Counter((*item.run, item.attempt) for item in due.items())
    due.consumer.close()
    assert handed_on == wanted, "output and offsets are one transaction"
    assert Counter(started(attempts)) == wanted


class NeverReturning(Producer):
    """Its call of the name ``never`` does what it does, or does nothing, and does not return until ``woken``."""

    never = ""
    does = True
    woken = threading.Event()

    def send_offsets_to_transaction(self, *args: Any) -> None:
        self._maybe_never("send_offsets_to_transaction", *args)

    def commit_transaction(self, *args: Any) -> None:
        self._maybe_never("commit_transaction", *args)

    def _maybe_never(self, name: str, *args: Any) -> None:
        call = getattr(super(), name)
        if name != self.never:
            call(*args)
            return
        type(self).never = ""
        if self.does:
            call(*args)
        self.woken.wait()
        if not self.does:
            call(*args)


@contextmanager
def moving_here(settings: ConsumerSettings) -> Iterator[None]:
    """A mover in a thread of this process."""
    one = mover.Mover(settings, SystemClock())
    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        yield
    finally:
        one.stop()
        thread.join(60)


@pytest.mark.parametrize("never", ["send_offsets_to_transaction", "commit_transaction"])
@pytest.mark.parametrize("does", [True, False])
def test_a_transaction_whose_call_never_returns_is_left_to_the_next_session(
    installation: TestInstallation,
    publisher: Publisher,
    attempts: Reader,
    monkeypatch: pytest.MonkeyPatch,
    never: str,
    does: bool,
) -> None:
    """Whatever the call had done; and what it does when it goes on after all changes nothing."""
    woken = threading.Event()
    monkeypatch.setattr(pulse, "watch", lambda *_: None)
    monkeypatch.setattr(mover, "CALL_SECONDS", 2.0)
    monkeypatch.setattr(mover, "Producer", NeverReturning)
    for name, value in {"never": never, "does": does, "woken": woken}.items():
        monkeypatch.setattr(NeverReturning, name, value)
    at_work(installation)
    due = Reader.of(installation, installation.topics.retry_due)
    retried = [failed(JOBS[partition][0], backoff_seconds=0.3) for partition in range(PARTITIONS)]
    publisher.outcomes(*retried)
    wanted = Counter((*item.run, 2) for item in retried)
    with moving_here(installation.settings(ConsumerSettings, node="here")):
        eventually(lambda: Counter(started(attempts)) >= wanted, within=60)
        woken.set()
        later = failed(JOBS[0][1], backoff_seconds=0.3)
        publisher.outcomes(later)
        wanted[(*later.run, 2)] += 1
        eventually(lambda: Counter(started(attempts)) >= wanted, within=60)
    handed_on = Counter((*item.run, item.attempt) for item in due.items())
    due.consumer.close()
    assert NeverReturning.never == "", "the call was made"
    assert handed_on == wanted


def test_a_mover_outlives_the_brokers_crash(
    installation: TestInstallation, publisher: Publisher, attempts: Reader
) -> None:
    """Kafka is killed while retries are handed on, one every 0.1 s; all of them come, and the mover is still there."""
    at_work(installation)
    process = moving(installation)
    due = Reader.of(installation, installation.topics.retry_due)
    retried = [failed(job, backoff_seconds=3 + number / 10) for number, job in enumerate(JOBS[0][:60])]
    publisher.outcomes(*retried)
    wanted = Counter((*item.run, 2) for item in retried)
    eventually(lambda: len(due.items()) >= 5, within=60)
    installation.endpoints.kill("kafka")
    installation.endpoints.start("kafka")
    eventually(lambda: Counter(started(attempts)) >= wanted, within=100)
    handed_on = Counter((*item.run, item.attempt) for item in due.items())
    due.consumer.close()
    assert handed_on == wanted
    assert process.poll() is None, installation.log_of("m1")
