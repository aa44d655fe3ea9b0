"""How a user names a job: its id, ``tenant/name``, or a bare name of tenant ``default``."""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg
from psycopg.rows import namedtuple_row

from cli.errors import Failure
from sql.queries import load

_BIGGEST_ID = 2**63 - 1


class Job(NamedTuple):
    """A job that was found."""

    job_id: int
    tenant: str
    name: str
    enabled: bool

    def __str__(self) -> str:
        return f"job {self.job_id} ({self.tenant}/{self.name})"


def readings(reference: str) -> tuple[int | None, list[tuple[str, str]]]:
    """The id, and the (tenant, name) pairs, that a reference can mean: either may hold a slash."""
    if reference.isascii() and reference.isdigit():
        number = int(reference)
        return (number if number <= _BIGGEST_ID else None), []
    parts = reference.split("/")
    pairs = [("/".join(parts[:cut]), "/".join(parts[cut:])) for cut in range(1, len(parts))]
    return None, pairs or [("default", reference)]


def find(connection: psycopg.Connection[Any], reference: str) -> Job:
    """The job. Raises Failure when there is none, or more than one."""
    job_id, pairs = readings(reference)
    parameters = {"job_id": job_id, "tenants": [tenant for tenant, _ in pairs], "names": [name for _, name in pairs]}
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        found = [Job(*row) for row in cursor.execute(load("cli")["find_jobs"], parameters)]
    if not found:
        hint = "a job is named by its id, or as tenant/name" if "/" not in reference and job_id is None else ""
        raise Failure(f"there is no job {reference}" + (f" ({hint})" if hint else ""))
    if len(found) > 1:
        raise Failure(f"{reference} can mean {' or '.join(map(str, found))}: use the id")
    return found[0]
