"""Workers that die, with admission, settlement and the mover around them: what is tried again, and what is not."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from cronstream.bodies import Policy, Work, pack
from cronstream.clock import SystemClock
from cronstream.records import Batch, Item, Kind
from tests.integration.test_retries import moving
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from tests.support.streams import JOBS, at_work
from tests.support.workers import World

PARTITION = 0


@pytest.fixture
def world(kafka: str, installation: TestInstallation) -> Iterator[World]:
    at_work(installation)
    moving(installation)
    made = World(kafka, installation)
    yield made
    made.close()


def a_run(job_id: int, handler: str, payload: Any, *, tenant: str = "acme", max_attempts: int = 3) -> Item:
    policy = Policy(max_attempts=max_attempts, backoff_seconds=0, jitter="none", timeout_seconds=60)
    work = Work(tenant, f"job-{job_id}", handler, json.dumps(payload).encode(), policy)
    return Item(Kind.RUN, job_id, SystemClock().wall_us(), body=pack(work))


def publish(world: World, *items: Item) -> None:
    """One record of triggers, as the leader would send it."""
    batch = Batch.of(items, token=7, published_at=SystemClock().wall_us())
    producer = Producer({"bootstrap.servers": world.installation.endpoints.kafka})
    producer.produce(world.topics.triggers, batch.encode(), partition=PARTITION)
    assert producer.flush(10) == 0


def outcomes(world: World, kind: Kind) -> Counter[tuple[int, int]]:
    """How often each attempt (job, number) had an outcome of a kind."""
    world.read()
    return Counter((item.job_id, item.attempt) for _, _, item in world.outcomes if item.kind == kind)


def test_a_handler_that_kills_its_worker_ends_as_a_dead_letter_after_max_attempts(world: World, tmp_path: Path) -> None:
    job, *others = JOBS[PARTITION][:11]
    # The guard's parent is the worker.
    kill = f"echo $CRONSTREAM_ATTEMPT >> {tmp_path}/tries; kill -9 $(cut -d' ' -f4 /proc/$PPID/stat); sleep 600"
    worker = world.worker("w1")
    publish(
        world,
        a_run(job, "command", {"argv": ["sh", "-c", kill]}, max_attempts=3),
        *(a_run(other, "log", {}, max_attempts=9) for other in others),
    )
    for _ in range(3):
        assert worker.wait(60) == -signal.SIGKILL
        worker = world.worker("w1")
    eventually(lambda: outcomes(world, Kind.LOST) and world.dead, within=60, says="a dead letter")
    assert (tmp_path / "tries").read_text().split() == ["1", "2", "3"]
    assert {attempt for of, attempt in outcomes(world, Kind.LOST) if of == job} == {1, 2, 3}
    headers = dict(world.dead[0].headers() or [])
    assert len(world.dead) == 1
    assert headers["cronstream-reason"] == b"exhausted"
    assert (headers["cronstream-job-id"], headers["cronstream-attempts"]) == (str(job).encode(), b"3")
    eventually(
        lambda: {of for of, _ in outcomes(world, Kind.SUCCEEDED)} == set(others), within=60, says="the others succeed"
    )
    assert worker.poll() is None


def test_of_a_killed_worker_each_run_in_flight_is_executed_once_more_and_none_that_had_finished(
    world: World, tmp_path: Path
) -> None:
    done, running = JOBS[PARTITION][:200], JOBS[PARTITION][200:220]
    script = f"echo $CRONSTREAM_ATTEMPT >> {tmp_path}/$CRONSTREAM_JOB_ID; [ $CRONSTREAM_ATTEMPT -gt 1 ] || sleep 600"
    worker = world.worker("w1", process_slots=40)
    publish(
        world,
        *(a_run(job, "log", {}, tenant=f"t{job % 5}") for job in done),
        *(a_run(job, "command", {"argv": ["sh", "-c", script]}, tenant=f"t{job % 5}") for job in running),
    )
    eventually(lambda: len(outcomes(world, Kind.SUCCEEDED)) == 200, within=60, says="200 are done")
    eventually(lambda: len(list(tmp_path.iterdir())) == 20, within=60, says="20 run")
    worker.send_signal(signal.SIGKILL)
    worker.wait(60)
    world.worker("w1", process_slots=40)
    eventually(lambda: len(outcomes(world, Kind.SUCCEEDED)) == 220, within=60, says="all are done")
    assert outcomes(world, Kind.SUCCEEDED) == Counter([(job, 1) for job in done] + [(job, 2) for job in running])
    assert outcomes(world, Kind.LOST) == Counter((job, 1) for job in running)
    assert Counter(world.ran("w1")) == Counter(done)
    executed = {int(path.name): path.read_text().split() for path in tmp_path.iterdir()}
    assert executed == {job: ["1", "2"] for job in running}
    assert not world.dead
