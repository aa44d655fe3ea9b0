"""Retries, dead letters and overlap on real servers: streams, mover and worker through whole stories."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from cronstream.clock import SECOND, SystemClock
from cronstream.records import Item, Kind
from tests.integration.test_streams import JOBS, Publisher, Reader, at_work
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from tests.unit.streams.making import outcome, work

RETRYING = {"backoff_seconds": 1.0, "backoff_factor": 1.5, "max_backoff_seconds": 2.0, "jitter": "none"}


@pytest.fixture
def publisher(installation: TestInstallation) -> Publisher:
    return Publisher(installation)


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


def moving(installation: TestInstallation, node: str = "m1", **changes: object) -> subprocess.Popen[bytes]:
    """A mover that has its partitions."""
    process = installation.start("streams.mover", node, **changes)
    eventually(lambda: "action=assigned" in installation.log_of(node), within=60, says=f"{node} has partitions")
    return process


def now_us() -> int:
    return SystemClock().wall_us()


def failed(job_id: int, attempt: int = 1, **policy: object) -> Item:
    """A failure of just now."""
    body = work(**{**RETRYING, **policy})
    return outcome(Kind.FAILED, job_id, now_us() - 2 * SECOND, attempt, "no", body)


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
