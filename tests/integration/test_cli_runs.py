"""The cronstream command on the real stack: runs, and requests for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.support.command import Command, define
from tests.support.installation import TestInstallation

RAN = """
INSERT INTO cronstream.job_runs (job_id, tenant, name, scheduled_time, attempt, outcome, published_at, started_at,
                                 finished_at, worker, error)
SELECT job_id, tenant, name, at, 1, %(outcome)s, at + interval '20 ms', at + interval '50 ms', at + interval '1 s',
       'worker-1', %(error)s
FROM cronstream.job_definitions, (SELECT date_trunc('hour', now()) - %(hours)s * interval '1 hour') AS t (at)
WHERE job_id = %(job_id)s
"""
RUNS = """
INSERT INTO cronstream.running_attempts
SELECT job_id, %(at)s, %(request)s, 1, tenant, name, now() - interval '3 hours', 'worker-2'
FROM cronstream.job_definitions WHERE job_id = %(job_id)s
"""


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


def test_a_job_is_shown_with_its_runs(cronstream: Command, database: psycopg.Connection[Any], job: int) -> None:
    database.execute(RAN, {"job_id": job, "outcome": "failed", "error": "HTTP 500", "hours": 1})
    for reference in (job, "billing/nightly"):
        shown = cronstream.json("jobs", "show", reference)
        assert (shown["job_id"], shown["cron"], shown["runs"][0]["outcome"]) == (job, "0 * * * *", "failed")
    text = cronstream("jobs", "show", job).stdout
    assert "schedule         0 * * * *, UTC" in text
    assert "HTTP 500" in text


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
    assert "remark     HTTP 500\noutput\nline one\nline two\\u001b[2J\n\njob " in shown.stdout
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
