"""The cronstream command on the real stack: an installation and its jobs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient

from connectors.observation import Observer
from connectors.registration import Registration
from cronstream.clock import SystemClock
from cronstream.settings import CaptureSettings, read_settings
from tests.support.command import Command, define
from tests.support.endpoints import Endpoints
from tests.support.installation import TestInstallation
from tests.support.poll import eventually


@pytest.fixture
def cronstream(installation: TestInstallation) -> Command:
    return Command(installation.variables)


@pytest.fixture
def database(installation: TestInstallation) -> Iterator[psycopg.Connection[Any]]:
    with installation.connect() as connection:
        yield connection


@pytest.fixture
def job(database: psycopg.Connection[Any]) -> int:
    return define(database, "billing", "nightly")


@pytest.fixture
def bare(stack: Endpoints) -> Iterator[Command]:
    """Servers on which nothing of an installation was made yet."""
    name = f"t{uuid.uuid4().hex[:10]}"
    with stack.database() as dsn:
        made = TestInstallation(name, stack, dsn, stack.password_file.parent)
        try:
            yield Command(made.variables)
        finally:
            made.end_processes()
            _forget(read_settings(CaptureSettings, made.variables))
            made._delete_topics()


def _forget(settings: CaptureSettings) -> None:
    registration = Registration(settings, SystemClock())
    registration.api.delete(registration.name)
    with Observer(settings, registration.api, registration.name, registration.slot) as observer:
        eventually(observer.drop_slot, within=30, every=0.3, says="the slot is dropped")


def test_setup_makes_everything_once(bare: Command) -> None:
    assert "run `cronstream setup`" in bare.refusal("jobs", "list")
    first = bare.json("setup")
    name = bare.variables["CRONSTREAM_INSTALLATION"]
    assert first["migrations"][0] == "0001_zones"
    assert f"{name}.triggers" in first["topics"]
    assert first["connector"] == f"{name}-capture"
    topics = AdminClient({"bootstrap.servers": bare.variables["CRONSTREAM_KAFKA"]}).list_topics(timeout=10).topics
    assert len(topics[f"{name}.triggers"].partitions) == 4
    assert len(topics[f"{name}.changes"].partitions) == 1

    mistyped = Command({**bare.variables, "CRONSTREAM_INSTALLATION": "mistyped"}).refusal("setup")
    assert f"belongs to the installation {name}" in mistyped

    second = bare.json("setup")
    assert (second["migrations"], second["topics"]) == ([], [])

    other = Command({**bare.variables, "CRONSTREAM_PARTITIONS": "12"})
    result = other("setup")
    assert result.exit_code == 1
    assert f"topic {name}.triggers has 4 partitions, not 12" in result.stderr.splitlines()[-1]

    status = bare("status")
    shown = {line.split()[0]: line.split()[1] for line in status.stdout.splitlines() if not line.startswith(" ")}
    assert shown == {
        "postgres": "ok",
        "kafka": "ok",
        "capture": "ok",
        "leader": "DOWN",
        "streams": "DOWN",
        "workers": "DOWN",
        "mover": "DOWN",
        "history": "DOWN",
        "alerts": "DOWN",
        "commands": "DOWN",
    }
    assert status.stderr == "cronstream: down: leader, streams, workers, mover, history, alerts, commands\n"
    assert "nobody is in the group" in status.stdout


def test_jobs_are_listed_by_tenant_and_state(cronstream: Command, database: psycopg.Connection[Any], job: int) -> None:
    define(database, "default", "hourly")
    assert [row["name"] for row in cronstream.json("jobs", "list")] == ["nightly", "hourly"]
    assert [row["job_id"] for row in cronstream.json("jobs", "list", "--tenant", "billing")] == [job]
    cronstream("jobs", "pause", "hourly")
    assert [row["name"] for row in cronstream.json("jobs", "list", "--paused")] == ["hourly"]
    assert [row["name"] for row in cronstream.json("jobs", "list", "--enabled")] == ["nightly"]
    listed = cronstream("jobs", "list", "--limit", "1")
    assert listed.stdout.splitlines()[1].split()[:3] == [str(job), "billing", "nightly"]
    assert listed.stderr == "(the first 1; --limit shows more)\n"


def test_pause_resume_and_delete_say_what_they_changed(
    cronstream: Command, database: psycopg.Connection[Any], job: int
) -> None:
    assert cronstream("jobs", "pause", "billing/nightly").stdout == f"job {job} (billing/nightly): paused\n"
    assert cronstream("jobs", "pause", job).stdout == f"job {job} (billing/nightly): was paused already\n"
    assert cronstream.json("jobs", "resume", job) == [
        {"job_id": job, "tenant": "billing", "name": "nightly", "resumed": True}
    ]
    assert database.execute("SELECT enabled FROM cronstream.job_definitions").fetchone() == (True,)
    assert cronstream("jobs", "delete", job).stdout == f"job {job} (billing/nightly): deleted\n"
    assert "there is no job" in cronstream.refusal("jobs", "show", job)


def test_an_unknown_job_among_others_changes_nothing(
    cronstream: Command, database: psycopg.Connection[Any], job: int
) -> None:
    assert cronstream.refusal("jobs", "delete", job, "billing/weekly") == "cronstream: there is no job billing/weekly"
    assert database.execute("SELECT count(*) FROM cronstream.job_definitions").fetchone() == (1,)


def test_a_name_that_can_mean_two_jobs_asks_for_the_id(cronstream: Command, database: psycopg.Connection[Any]) -> None:
    define(database, "a", "b/c")
    define(database, "a/b", "c")
    assert "use the id" in cronstream.refusal("jobs", "show", "a/b/c")


def test_jobs_show_how_they_stand_and_whether_they_are_over(
    cronstream: Command, database: psycopg.Connection[Any], job: int
) -> None:
    database.execute(
        "INSERT INTO cronstream.job_status (job_id, tenant, name, state, running, last_run)"
        " VALUES (%s, 'billing', 'nightly', 'running', 1, now())",
        [job],
    )
    (row,) = cronstream.json("jobs", "list")
    assert (row["state"], row["next_run_at"], row["over"]) == ("running", None, False)
    assert cronstream("jobs", "list").stdout.split()[-2:] == ["running", "-"]
    assert "running          1\n" in cronstream("jobs", "show", job).stdout
    database.execute("INSERT INTO cronstream.schedules (job_id, version, revision) VALUES (%s, 1, 1)", [job])
    assert cronstream("jobs", "list").stdout.rstrip().endswith("none any more")


def test_a_job_of_another_tenant_is_suggested(cronstream: Command, job: int) -> None:
    said = cronstream.refusal("jobs", "show", "Nightly")
    assert said == "cronstream: there is no job Nightly (did you mean billing/nightly?)"
    assert "did you mean billing/nightly?" in cronstream.refusal("jobs", "pause", "biling/nightly")


def test_adopting_an_etcd_lets_tokens_go_on(cronstream: Command, database: psycopg.Connection[Any]) -> None:
    database.execute("UPDATE cronstream.coordinator_epoch SET token = 41")
    assert cronstream.json("adopt-etcd", "--yes") == {"adopted": True, "base": 41}


def test_a_database_belongs_to_one_installation(cronstream: Command, database: psycopg.Connection[Any]) -> None:
    database.execute("UPDATE cronstream.coordinator_epoch SET token = 41")
    own = cronstream.variables["CRONSTREAM_INSTALLATION"]
    other = Command({**cronstream.variables, "CRONSTREAM_INSTALLATION": "mistyped"})
    for arguments in (("adopt-etcd", "--yes"), ("setup",), ("jobs", "list")):
        refusal = other.refusal(*arguments)
        assert f"belongs to the installation {own}, and CRONSTREAM_INSTALLATION is mistyped: set it to {own}" in refusal
    assert database.execute("SELECT token, base FROM cronstream.coordinator_epoch").fetchone() == (41, 0)
    assert own in other("doctor").stdout
    topics = AdminClient({"bootstrap.servers": cronstream.variables["CRONSTREAM_KAFKA"]}).list_topics(timeout=10).topics
    assert "mistyped.triggers" not in topics
