"""The cronstream command in an installation's environment, and a job for it to work on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import psycopg
from click.testing import CliRunner, Result

from cli.main import cli


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


def define(database: psycopg.Connection[Any], tenant: str, name: str) -> int:
    """An hourly job; returns its id."""
    row = database.execute(
        "INSERT INTO cronstream.job_definitions (tenant, name, cron, handler) VALUES (%s, %s, '0 * * * *', 'log')"
        " RETURNING job_id",
        (tenant, name),
    ).fetchone()
    assert row is not None
    return int(row[0])
