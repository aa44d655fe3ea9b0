"""The streams process on real servers: triggers in, attempts and status out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cronstream.clock import SECOND, iso
from cronstream.records import Batch, Kind, Source
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from tests.support.streams import JOBS, Publisher, Reader, at_work, free_port
from tests.unit.streams.making import NOON, cancel, outcome, run, skip, triggers


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


def test_a_missing_topic_is_named(installation: TestInstallation) -> None:
    process = installation.start("streams", "s1", installation="nowhere", status_port=free_port())
    assert process.wait(60) != 0
    assert "nowhere.triggers" in installation.log_of("s1")
