"""The command line as a role that may look and change nothing, and as one that may not even look."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from psycopg import sql

from cli.main import cli
from tests.support.installation import TestInstallation

TABLES = """
SELECT format('cronstream.%I', relname) FROM pg_class
WHERE relnamespace = 'cronstream'::regnamespace AND relkind IN ('r', 'p')
"""


class Viewer:
    """A login role of its own, and the command as that role."""

    def __init__(self, installation: TestInstallation) -> None:
        self.role = f"viewer_{uuid.uuid4().hex[:10]}"
        self.secret = installation.folder / self.role
        self.secret.write_text("looks")
        server = f"{installation.variables['CRONSTREAM_POSTGRES']} user={self.role}"
        self.dsn = f"{server} password=looks"
        own = {"CRONSTREAM_POSTGRES": server, "CRONSTREAM_POSTGRES_PASSWORD_FILE": str(self.secret)}
        self.variables = {**installation.variables, **own}

    def __call__(self, *arguments: object) -> Result:
        return CliRunner().invoke(cli, [str(argument) for argument in arguments], env=self.variables)


@pytest.fixture
def viewer(installation: TestInstallation) -> Iterator[Viewer]:
    made = Viewer(installation)
    password = installation.endpoints.password_file.with_name("postgres_superuser_password").read_text().strip()
    role = sql.Identifier(made.role)
    with installation.connect(user="postgres", password=password) as superuser:
        superuser.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'looks'").format(role))
        try:
            yield made
        finally:
            superuser.execute(sql.SQL("DROP OWNED BY {0}; DROP ROLE {0}").format(role))


@pytest.fixture
def database(installation: TestInstallation) -> Iterator[psycopg.Connection[Any]]:
    """With a job, a request, a run and a dead letter."""
    with installation.connect() as connection:
        connection.execute(
            "INSERT INTO cronstream.job_definitions (tenant, name, cron, handler)"
            " VALUES ('acme', 'job', '@hourly', 'log')"
        )
        connection.execute("SELECT cronstream.run_now('acme', 'job', 'mine')")
        connection.execute(
            "INSERT INTO cronstream.job_runs (job_id, tenant, name, scheduled_time, attempt, outcome)"
            " SELECT job_id, tenant, name, date_trunc('hour', now()), 1, 'failed' FROM cronstream.job_definitions"
        )
        connection.execute(
            'INSERT INTO cronstream.dead_letters (identity, reason, stage, error, at, topic, partition, "offset",'
            " value, letter_partition, letter_offset)"
            " VALUES ('1', 'exhausted', 'settle', 'no', now(), 't', 0, 0, '', 0, 0)"
        )
        yield connection


def test_a_role_of_grant_viewing_sees_everything_and_changes_nothing(
    viewer: Viewer, database: psycopg.Connection[Any]
) -> None:
    database.execute("SELECT cronstream.grant_viewing(%s)", [viewer.role])
    (letter,) = json.loads(viewer("dead-letters", "list", "--json").stdout)
    for arguments, shown in (
        (["jobs", "list"], "@hourly"),
        (["jobs", "show", "acme/job"], "acme"),
        (["runs", "list"], "failed"),
        (["runs", "list", "--state", "running"], None),
        (["requests", "list"], "run-now"),
        (["requests", "show", "1"], "mine"),
        (["dead-letters", "show", letter["letter_id"]], "exhausted"),
        (["history", "list"], None),
    ):
        said = viewer(*arguments)
        assert said.exit_code == 0, (arguments, said.output)
        assert shown is None or shown in said.stdout
    assert "1 definition" in next(line for line in viewer("status").stdout.splitlines() if "postgres" in line)
    judged = viewer("doctor").stdout
    assert "definitions" in judged
    assert "permission denied" not in judged
    for arguments in (["jobs", "pause", "acme/job"], ["jobs", "run-now", "acme/job"]):
        assert "grant_definitions" in viewer(*arguments).stderr
    assert "grant_definitions" in viewer("dead-letters", "discard", letter["letter_id"]).stderr
    with psycopg.connect(viewer.dsn, autocommit=True) as connection:
        for (table,) in database.execute(TABLES).fetchall():
            for right in ("INSERT", "UPDATE", "DELETE", "TRUNCATE"):
                row = connection.execute("SELECT has_table_privilege(%s, %s)", [table, right]).fetchone()
                assert row == (False,), (table, right)


def test_status_of_a_role_without_rights_names_the_right_and_says_nothing_is_down(
    viewer: Viewer, database: psycopg.Connection[Any]
) -> None:
    database.execute("SELECT cronstream.grant_history(%s)", [viewer.role])
    line = next(line for line in viewer("status").stdout.splitlines() if line.startswith("postgres"))
    assert "DOWN" not in line
    assert "could not be asked: permission denied for table" in line
    assert "SELECT cronstream.grant_viewing('ROLE')" in line
    assert "grant_viewing" in viewer("jobs", "list").stderr
