"""Asking for things in SQL: a transaction with a job in it, and calls of the functions that users call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

Conn = psycopg.Connection[tuple[Any, ...]]


@contextmanager
def transaction_with_a_job(database: str) -> Iterator[Conn]:
    """A transaction that is rolled back, with the job default/job."""
    with psycopg.connect(database) as conn:
        conn.execute(
            "INSERT INTO cronstream.job_definitions (name, cron, handler, backoff_seconds)"
            " VALUES ('job', '*/5 * * * *', 'log', 7)"
        )
        yield conn
        conn.rollback()


def one(conn: Conn, statement: str, *values: Any) -> Any:
    """The first column of the first row."""
    row = conn.execute(statement, values).fetchone()  # type: ignore[arg-type]
    assert row is not None
    return row[0]


def call(conn: Conn, function: str, *values: Any) -> dict[str, Any]:
    """The answer of one of the schema's functions."""
    marks = ", ".join(["%s"] * len(values))
    answer: dict[str, Any] = one(conn, f"SELECT cronstream.{function}({marks})", *values)
    return answer


def definition(conn: Conn, name: str = "job") -> dict[str, Any]:
    """A job's definition as it stands."""
    answer: dict[str, Any] = one(conn, "SELECT to_jsonb(d) FROM cronstream.job_definitions d WHERE name = %s", name)
    return answer


def ended(conn: Conn, job_id: int, scheduled_time: str, request_id: int = 0, attempt: int = 5) -> None:
    """History has a run's last attempt."""
    conn.execute("SELECT cronstream.ensure_job_runs_partition(%s::date)", [scheduled_time[:10]])
    conn.execute(
        "INSERT INTO cronstream.job_runs (job_id, scheduled_time, request_id, attempt, outcome)"
        " VALUES (%s, %s, %s, %s, 'failed')",
        [job_id, scheduled_time, request_id, attempt],
    )
