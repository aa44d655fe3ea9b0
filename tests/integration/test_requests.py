"""Requests on real servers: from a function in SQL to triggers and attempts, through the leader's death."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from cronstream.clock import SECOND, to_us
from cronstream.records import Item, Kind
from tests.integration.test_coordinator import AUDITED, await_leader, insert
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from tests.support.streams import PARTITIONS, at_work
from tests.support.triggers import Watcher


@pytest.fixture
def triggers(installation: TestInstallation) -> Iterator[Watcher]:
    watcher = Watcher(installation.endpoints.kafka, installation.topics.triggers, PARTITIONS)
    yield watcher
    watcher.close()


@pytest.fixture
def attempts(installation: TestInstallation) -> Iterator[Watcher]:
    watcher = Watcher(installation.endpoints.kafka, installation.topics.attempts, PARTITIONS)
    yield watcher
    watcher.close()


def ask(installation: TestInstallation, function: str, *values: Any) -> dict[str, Any]:
    with installation.connect() as connection:
        row = connection.execute(
            f"SELECT cronstream.{function}({', '.join(['%s'] * len(values))})",  # type: ignore[arg-type]
            values,
        ).fetchone()
    assert row is not None
    answer: dict[str, Any] = row[0]
    return answer


def request(installation: TestInstallation, number: int) -> dict[str, Any]:
    with installation.connect() as connection:
        row = connection.execute("SELECT to_jsonb(q) FROM cronstream.requests q WHERE number = %s", [number]).fetchone()
    assert row is not None
    stored: dict[str, Any] = row[0]
    return stored


def await_state(installation: TestInstallation, number: int, state: str, within: float = 10) -> None:
    eventually(lambda: request(installation, number)["state"] == state, within=within, says=f"{number} is {state}")


def us(text: str) -> int:
    return to_us(datetime.fromisoformat(text))


def runs_of(watcher: Watcher, request_id: int) -> list[Item]:
    return [seen.item for seen in watcher.poll() if seen.item.request_id == request_id]


def test_a_run_now_is_published_within_a_second(installation: TestInstallation, triggers: Watcher) -> None:
    installation.start("connectors", "capture")
    installation.start("coordinator", "c1", audit_seconds=600)  # capture alone brings it
    await_leader(installation)
    eventually(lambda: "Capture delivers" in installation.log_of("capture"), within=60, says="capture is at work")
    insert(installation, "job", cron="@yearly", enabled=False)
    for _ in range(5):
        answer = ask(installation, "run_now", "default", "job")
        number = answer["request_id"]
        await_state(installation, number, "done")
        # who watches the topic hears of it a moment after it is noted
        eventually(
            lambda number=number: bool(runs_of(triggers, number)), within=10, says=f"the run of {number} is there"
        )
        (item,) = runs_of(triggers, number)
        (seen,) = [seen for seen in triggers.seen if seen.item.request_id == number]
        assert item.kind == Kind.RUN
        assert item.scheduled_us == us(answer["scheduled_time"])
        assert seen.acknowledged_ms * 1000 - item.scheduled_us < SECOND
    with installation.connect() as connection:
        assert connection.execute("SELECT count(*) FROM cronstream.open_requests").fetchone() == (0,)


def test_a_backfill_goes_on_after_its_leader_was_killed_and_admits_every_run_once(
    installation: TestInstallation, triggers: Watcher, attempts: Watcher
) -> None:
    leaders = {node: installation.start("coordinator", node, **AUDITED) for node in ("c1", "c2")}
    at_work(installation)
    leader = await_leader(installation)
    job_id = insert(installation, "job", every="1 minute", anchor="2026-01-01T00:00:00Z")
    begins, ends = "2026-01-01T00:00:00Z", "2026-01-01T08:19:00Z"
    number = ask(installation, "backfill", "default", "job", begins, ends, "once")["request_id"]
    eventually(lambda: len(runs_of(triggers, number)) >= 150, within=30)
    leaders[leader.node].kill()
    await_state(installation, number, "done", within=60)
    expected = [us(begins) + minute * 60 * SECOND for minute in range(500)]
    eventually(lambda: len(runs_of(attempts, number)) >= 500, within=20)
    admitted = runs_of(attempts, number)
    assert [item.scheduled_us for item in admitted] == expected
    assert {item.job_id for item in admitted} == {job_id}
    stored = request(installation, number)
    assert (stored["published"], us(stored["cursor"])) == (500, us(ends))
    assert await_leader(installation).node != leader.node
    assert ask(installation, "backfill", "default", "job", begins, ends, "once")["request_id"] == number


@pytest.mark.parametrize("point", ["request.published", "publish.committed"])
def test_a_leader_that_dies_before_it_notes_a_run_is_followed_by_one_that_knows_it(
    installation: TestInstallation, triggers: Watcher, point: str
) -> None:
    first = installation.start("coordinator", "c1", **AUDITED, fault_point=point)
    await_leader(installation)
    job_id = insert(installation, "job", cron="@yearly")
    number = ask(installation, "run_now", "default", "job")["request_id"]
    assert first.wait(20) == -signal.SIGKILL
    assert request(installation, number)["state"] == "open"
    installation.start("coordinator", "c2", **AUDITED)
    await_state(installation, number, "done", within=30)
    assert [item.job_id for item in runs_of(triggers, number)] == [job_id]


def test_the_backfill_of_a_job_that_is_deleted_ends_and_says_why(
    installation: TestInstallation, triggers: Watcher
) -> None:
    installation.start("coordinator", "c1", **AUDITED, backfill_per_second=20)
    await_leader(installation)
    insert(installation, "job", every="1 minute", anchor="2026-01-01T00:00:00Z")
    answer = ask(installation, "backfill", "default", "job", "2026-01-01T00:00:00Z", "2026-01-08T00:00:00Z")
    number = answer["request_id"]
    eventually(lambda: len(runs_of(triggers, number)) >= 20, within=30)
    ask(installation, "delete", "default", "job")
    await_state(installation, number, "cancelled")
    stored = request(installation, number)
    assert stored["reason"] == "the job was deleted"
    assert stored["published"] == len(runs_of(triggers, number)) < 1000
    assert stored["answer"] == answer


def test_a_redrive_is_the_same_run_with_its_next_attempt(installation: TestInstallation, attempts: Watcher) -> None:
    installation.start("coordinator", "c1", **AUDITED)
    at_work(installation)
    await_leader(installation)
    job_id = insert(installation, "job", cron="@yearly", overlap_policy="allow")
    with installation.connect() as connection:
        connection.execute("SELECT cronstream.ensure_job_runs_partition('2026-01-01')")
        connection.execute(
            "INSERT INTO cronstream.job_runs (job_id, scheduled_time, attempt, outcome)"
            " VALUES (%s, '2026-01-01T00:00:00Z', 5, 'failed')",
            [job_id],
        )
    answer = ask(installation, "redrive", job_id, "2026-01-01T00:00:00Z", 0, 5)
    found = eventually(lambda: [seen.item for seen in attempts.poll() if seen.item.job_id == job_id], within=20)
    assert [(item.idempotency_key, item.attempt) for item in found] == [(answer["idempotency_key"], 6)]
