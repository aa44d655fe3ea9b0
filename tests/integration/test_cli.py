"""The cronstream command on the real stack."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from confluent_kafka.admin import AdminClient

from cli.main import cli
from connectors.observation import Observer
from connectors.registration import Registration
from cronstream.clock import SystemClock
from cronstream.settings import CaptureSettings, read_settings
from tests.support.endpoints import Endpoints
from tests.support.installation import TestInstallation
from tests.support.poll import eventually

DEFINE = """
INSERT INTO cronstream.job_definitions (tenant, name, cron, handler) VALUES (%s, %s, '0 * * * *', 'log')
RETURNING job_id
"""
RAN = """
INSERT INTO cronstream.job_runs (job_id, tenant, name, scheduled_time, attempt, outcome, published_at, started_at,
                                 finished_at, worker, error)
SELECT job_id, tenant, name, at, 1, %(outcome)s, at + interval '20 ms', at + interval '50 ms', at + interval '1 s',
       'worker-1', %(error)s
FROM cronstream.job_definitions, (SELECT date_trunc('hour', now()) - %(hours)s * interval '1 hour') AS t (at)
WHERE job_id = %(job_id)s
"""


@dataclass
class Command:
    """The command in an installation's environment."""

    variables: dict[str, str]

    def __call__(self, *arguments: object) -> Result:
        return CliRunner().invoke(cli, [str(argument) for argument in arguments], env=self.variables)

    def json(self, *arguments: object) -> Any:
        result = self(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def refusal(self, *arguments: object) -> str:
        result = self(*arguments)
        assert result.exit_code == 1
        assert len(result.stderr.splitlines()) == 1
        return result.stderr.strip()


@pytest.fixture
def cronstream(installation: TestInstallation) -> Command:
    return Command(installation.variables)


@pytest.fixture
def database(installation: TestInstallation) -> Iterator[psycopg.Connection[Any]]:
    with installation.connect() as connection:
        yield connection


@pytest.fixture
def job(database: psycopg.Connection[Any]) -> int:
    row = database.execute(DEFINE, ("billing", "nightly")).fetchone()
    assert row is not None
    return int(row[0])


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
    database.execute(DEFINE, ("default", "hourly"))
    assert [row["name"] for row in cronstream.json("jobs", "list")] == ["nightly", "hourly"]
    assert [row["job_id"] for row in cronstream.json("jobs", "list", "--tenant", "billing")] == [job]
    cronstream("jobs", "pause", "hourly")
    assert [row["name"] for row in cronstream.json("jobs", "list", "--paused")] == ["hourly"]
    assert [row["name"] for row in cronstream.json("jobs", "list", "--enabled")] == ["nightly"]
    listed = cronstream("jobs", "list", "--limit", "1")
    assert listed.stdout.splitlines()[1].split()[:3] == [str(job), "billing", "nightly"]
    assert listed.stderr == "(the first 1; --limit shows more)\n"


def test_a_job_is_shown_with_its_runs(cronstream: Command, database: psycopg.Connection[Any], job: int) -> None:
    database.execute(RAN, {"job_id": job, "outcome": "failed", "error": "HTTP 500", "hours": 1})
    for reference in (job, "billing/nightly"):
        shown = cronstream.json("jobs", "show", reference)
        assert (shown["job_id"], shown["cron"], shown["runs"][0]["outcome"]) == (job, "0 * * * *", "failed")
    text = cronstream("jobs", "show", job).stdout
    assert "schedule         0 * * * *, UTC" in text
    assert "HTTP 500" in text


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
    database.execute(DEFINE, ("a", "b/c"))
    database.execute(DEFINE, ("a/b", "c"))
    assert "use the id" in cronstream.refusal("jobs", "show", "a/b/c")


def test_runs_are_listed_newest_first_and_filtered(
    cronstream: Command, database: psycopg.Connection[Any], job: int
) -> None:
    for hours, outcome in ((1, "succeeded"), (2, "failed"), (5, "succeeded")):
        database.execute(RAN, {"job_id": job, "outcome": outcome, "error": None, "hours": hours})
    assert [row["outcome"] for row in cronstream.json("runs", "list")] == ["succeeded", "failed", "succeeded"]
    assert len(cronstream.json("runs", "list", "billing/nightly", "--since", "4h")) == 2
    assert len(cronstream.json("runs", "list", job, "--state", "failed")) == 1
    line = cronstream("runs", "list", "--limit", "1").stdout.splitlines()[1].split()
    assert line[1:5] == [str(job), "billing/nightly", "-", "1"]
    assert line[5:] == ["succeeded", "50.0ms", "20.0ms", "950.0ms", "worker-1", "-"]
    assert "there is no job" in cronstream.refusal("runs", "list", "nobody/nothing")


RUNS = """
INSERT INTO cronstream.running_attempts
SELECT job_id, %(at)s, %(request)s, 1, tenant, name, now() - interval '3 hours', 'worker-2'
FROM cronstream.job_definitions WHERE job_id = %(job_id)s
"""


def test_what_runs_is_listed_with_what_ran(cronstream: Command, database: psycopg.Connection[Any], job: int) -> None:
    database.execute(RAN, {"job_id": job, "outcome": "succeeded", "error": None, "hours": 5})
    database.execute(RUNS, {"job_id": job, "request": 0, "at": "2999-01-01T00:00:00Z"})
    rows = cronstream.json("runs", "list")
    assert [(row["state"], row["outcome"]) for row in rows] == [("running", None), ("succeeded", "succeeded")]
    assert [row["worker"] for row in cronstream.json("runs", "list", job, "--state", "running")] == ["worker-2"]
    assert [row["state"] for row in cronstream.json("runs", "list", "--state", "succeeded")] == ["succeeded"]
    shown = cronstream("runs", "list", job, "--limit", "1")
    assert "3h" in shown.stdout
    assert "so far" in shown.stdout
    assert shown.stderr == "(the newest 1; --limit shows more)\n"
    cronstream("jobs", "delete", job)
    assert "running" in cronstream("runs", "list", "billing/nightly").stdout


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


def test_the_attempts_of_one_run_are_shown_with_their_output(
    cronstream: Command, database: psycopg.Connection[Any], job: int
) -> None:
    database.execute(RAN, {"job_id": job, "outcome": "failed", "error": "HTTP 500", "hours": 1})
    database.execute("UPDATE cronstream.job_runs SET output = E'line one\\nline two\\x1b[2J'")
    (listed,) = cronstream.json("runs", "list")
    time = listed["scheduled_time"]
    database.execute(RUNS, {"job_id": job, "request": 7, "at": time})
    shown = cronstream("runs", "show", "billing/nightly", time)
    assert "state      failed\n" in shown.stdout
    assert "remark     HTTP 500\noutput\nline one\nline two\ufffd[2J\n\njob " in shown.stdout
    assert "request    7\nattempt    1\nstate      running\n" in shown.stdout
    assert len(cronstream.json("runs", "show", job, time, "--request", "0")) == 1
    assert "no run of billing/nightly is known at 2026-01-01T00:00:00Z" in cronstream.refusal(
        "runs", "show", "billing/nightly", "2026-01-01T00:00:00Z"
    )


def test_requests_are_followed(cronstream: Command, database: psycopg.Connection[Any], job: int) -> None:
    asked = cronstream("jobs", "backfill", job, "--begins", "2026-01-01T00:00:00Z", "--ends", "2026-01-01T05:00:00Z")
    (request,) = cronstream.json("requests", "list", job)
    number = request["number"]
    assert f"backfill is request {number}, 6 runs, 2026-01-01T00" in asked.stdout
    assert asked.stderr == (
        f"(follow it: cronstream requests show {number}; cronstream runs list --request {number})\n"
    )
    database.execute("SELECT cronstream.ensure_job_runs_partition('2026-01-01')")
    database.execute(
        "INSERT INTO cronstream.job_runs (job_id, tenant, name, scheduled_time, request_id, attempt, outcome)"
        " SELECT %s, 'billing', 'nightly', at, request, attempt, outcome FROM (VALUES"
        " ('2026-01-01T00:00Z'::timestamptz, %s, 1, 'failed'), ('2026-01-01T00:00Z', %s, 2, 'succeeded'),"
        " ('2026-01-01T01:00Z', %s, 1, 'failed'), ('2026-01-01T01:00Z', 0, 1, 'succeeded')"
        ") AS ran (at, request, attempt, outcome)",
        [job, number, number, number],
    )
    database.execute(RUNS, {"job_id": job, "request": number, "at": "2026-01-01T02:00:00Z"})
    database.execute("UPDATE cronstream.requests SET published = 3")
    shown = cronstream("requests", "show", number)
    assert "published  3 of 6\n" in shown.stdout
    assert "runs       1 failed, 1 running, 1 succeeded\n" in shown.stdout
    assert cronstream.json("requests", "show", number)["standing"] == {"failed": 1, "running": 1, "succeeded": 1}
    rows = cronstream.json("runs", "list", "--request", number)
    assert [row["state"] for row in rows] == ["running", "failed", "succeeded", "failed"]
    assert len(cronstream.json("runs", "list", job, "--request", number, "--state", "failed")) == 2
    assert len(cronstream.json("runs", "list", job, "--request", "0")) == 1
    assert "there is no request 999" in cronstream.refusal("runs", "list", "--request", "999")
    assert "there is no request 999" in cronstream.refusal("requests", "show", "999")


def test_requests_are_listed_by_job_kind_and_state(
    cronstream: Command, database: psycopg.Connection[Any], job: int
) -> None:
    cronstream("jobs", "run-now", job)
    cronstream("jobs", "pause", job)
    command = {"command": "patch", "id": "p", "tenant": "billing", "name": "nightly", "changes": {"crn": "@daily"}}
    database.execute("SELECT cronstream.apply_command(%s::jsonb)", [json.dumps(command)])
    assert [row["kind"] for row in cronstream.json("requests", "list", "billing/nightly")] == [
        "patch",
        "pause",
        "run-now",
    ]
    assert [row["kind"] for row in cronstream.json("requests", "list", "--state", "open")] == ["run-now"]
    assert [row["kind"] for row in cronstream.json("requests", "list", "--kind", "pause")] == ["pause"]
    lines = cronstream("requests", "list").stdout.splitlines()
    assert lines[1].split()[1:7] == ["patch", "-", "billing/nightly", "refused", "-", "-"]
    assert lines[1].endswith("crn is no column of a definition")
    assert lines[3].split()[4:7] == ["open", "0", "of"]
    assert "no such request for one" in cronstream.refusal("requests", "list", "nobody/nothing")


def test_history_is_shown_of_a_job_that_was_deleted_or_renamed(
    cronstream: Command, database: psycopg.Connection[Any], job: int
) -> None:
    database.execute(RAN, {"job_id": job, "outcome": "succeeded", "error": None, "hours": 1})
    database.execute("UPDATE cronstream.job_definitions SET name = 'weekly'")
    assert len(cronstream.json("runs", "list", "billing/nightly")) == 1
    assert len(cronstream.json("runs", "list", "billing/weekly")) == 1
    cronstream("jobs", "delete", job)
    for reference in ("billing/nightly", job):
        result = cronstream("runs", "list", reference)
        assert len(result.stdout.splitlines()) == 2
        assert f"no job is {reference} any more" in result.stderr
    assert cronstream("runs", "list", job, "--state", "failed").stdout == "no runs\n"
    assert "there is no job 99, and no history of one" in cronstream.refusal("runs", "list", 99)


def test_a_job_of_another_tenant_is_suggested(cronstream: Command, job: int) -> None:
    said = cronstream.refusal("jobs", "show", "Nightly")
    assert said == "cronstream: there is no job Nightly (did you mean billing/nightly?)"
    assert "did you mean billing/nightly?" in cronstream.refusal("jobs", "pause", "biling/nightly")


def test_run_now_and_backfill_are_requests_and_an_id_is_asked_once(
    cronstream: Command, database: psycopg.Connection[Any], job: int
) -> None:
    (first,) = cronstream.json("jobs", "run-now", "billing/nightly", "--id", "mine")
    assert (first["job_id"], first["command"], first["id"]) == (job, "run-now", "mine")
    assert cronstream.json("jobs", "run-now", job, "--id", "mine") == [first]
    taken = cronstream.refusal("jobs", "backfill", job, "--begins", "2h", "--id", "mine")
    assert taken.startswith("cronstream: id was used before, for something else. id is 'mine'. It was used for run-now")
    said = cronstream("jobs", "backfill", job, "--begins", "2026-01-01T00:00:00Z", "--ends", "2026-01-02T00:00:00Z")
    assert "backfill is request" in said.stdout
    assert "2026-01-01T00:00:00.000000Z to 2026-01-02T00:00:00.000000Z" in said.stdout
    kinds = database.execute("SELECT kind FROM cronstream.open_requests ORDER BY number").fetchall()
    assert kinds == [("run-now",), ("backfill",)]
    refused = cronstream.refusal("jobs", "backfill", job, "--begins", "1h", "--ends", "2999-01-01T00:00:00Z")
    assert refused.startswith("cronstream: ends is in the future. ends is '2999-01-01 00:00:00+00'. A backfill runs")
    assert cronstream.json("jobs", "backfill", job, "--begins", "2h", "--ends", "now")[0]["runs"] == 2
    nothing = cronstream.refusal(
        "jobs", "backfill", job, "--begins", "2026-01-01T00:01Z", "--ends", "2026-01-01T00:02Z"
    )
    assert "cron '0 * * * *' has no scheduled time from 2026-01-01T00:01:00.000000Z to 2026-01-01T00:02" in nothing
    assert cronstream("jobs", "run-now", job, job, "--id", "x").exit_code == 2


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
