"""Workers on a real broker: what they say, what they commit, and how they leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cronstream.records import Item, Kind
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from tests.support.workers import SCHEDULED_US, TOKEN, World, command_item, is_alive, item, log_item, saying_its_pid

QUICK = ["true"]


@pytest.fixture
def world(kafka: str, installation: TestInstallation) -> Iterator[World]:
    made = World(kafka, installation)
    yield made
    made.close()


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


def test_a_broker_that_is_away_does_not_keep_a_worker_from_leaving(world: World) -> None:
    worker = world.worker("w1", kafka="127.0.0.1:1", session_timeout_seconds=6)
    eventually(lambda: "action=client_error" in world.installation.log_of("w1"), within=60)
    assert worker.poll() is None
    worker.terminate()
    assert worker.wait(60) == 0
