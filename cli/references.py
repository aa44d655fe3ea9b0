"""How a user names a job: its id, ``tenant/name``, or a bare name of tenant ``default``."""

from __future__ import annotations

from typing import Any, NamedTuple

import psycopg
from psycopg.rows import namedtuple_row

from cli.errors import Failure
from sql.queries import load

_BIGGEST_ID = 2**63 - 1
_SUGGEST_SECONDS = 2


class Job(NamedTuple):
    """A job that was found."""

    job_id: int
    tenant: str
    name: str
    enabled: bool

    def __str__(self) -> str:
        return f"job {self.job_id} ({self.tenant}/{self.name})"


class Named(NamedTuple):
    """Whose history is asked for: a job that is defined, or what a job was called while it was."""

    job_id: int | None
    pairs: list[tuple[str, str]]

    @property
    def parameters(self) -> dict[str, object]:
        """For the statements of history: without a reference, any job."""
        return {
            "job_id": self.job_id,
            "tenants": [tenant for tenant, _ in self.pairs] or None,
            "names": [name for _, name in self.pairs] or None,
        }


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
    job = _look(connection, reference)
    if job is None:
        raise unknown(connection, reference)
    return job


def find_history(connection: psycopg.Connection[Any], reference: str) -> tuple[Named, bool]:
    """Whose history to show, and whether the job is still defined. Raises Failure when nothing has that name."""
    job = _look(connection, reference)
    if job is not None:
        return Named(job.job_id, []), True
    gone = Named(*readings(reference))
    known = gone.job_id is not None or gone.pairs
    row = connection.execute(load("cli")["has_history"], gone.parameters).fetchone() if known else None
    if row is None or not row[0]:
        raise unknown(connection, reference, ", and no history of one")
    return gone, False


def find_asked(connection: psycopg.Connection[Any], reference: str) -> tuple[Named, bool]:
    """Whose requests to show, those of its name too (refused commands know no id), and whether the job is defined."""
    job = _look(connection, reference)
    if job is None:
        return Named(*readings(reference)), False
    return Named(job.job_id, [(job.tenant, job.name)]), True


def unknown(connection: psycopg.Connection[Any], reference: str, more: str = "") -> Failure:
    """There is no such job; what may have been meant."""
    job_id, pairs = readings(reference)
    names = [reference] if not pairs else [name for _, name in pairs]
    known: list[str] = []
    try:
        connection.execute(f"SET statement_timeout = {_SUGGEST_SECONDS * 1000}".encode())
        parameters = {"names": [name.lower() for name in names], "most": 3}
        known = [f"{tenant}/{name}" for tenant, name in connection.execute(load("cli")["suggest_jobs"], parameters)]
    except psycopg.errors.QueryCanceled:
        pass  # among so many jobs a guess takes too long
    hints = [f"did you mean {' or '.join(known)}?"] if known else []
    if "/" not in reference and not known and job_id is None:
        hints.append("a job is named by its id, or as tenant/name; without a tenant it is one of default")
    return Failure(f"there is no job {reference}{more}" + (f" ({'; '.join(hints)})" if hints else ""))


def _look(connection: psycopg.Connection[Any], reference: str) -> Job | None:
    job_id, pairs = readings(reference)
    parameters = {"job_id": job_id, "tenants": [tenant for tenant, _ in pairs], "names": [name for _, name in pairs]}
    with connection.cursor(row_factory=namedtuple_row) as cursor:
        found = [Job(*row) for row in cursor.execute(load("cli")["find_jobs"], parameters)]
    if len(found) > 1:
        raise Failure(f"{reference} can mean {' or '.join(map(str, found))}: use the id")
    return found[0] if found else None
