"""The jobs of the demo, inserted as a user would: with plain SQL."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

REAL_FLEET = Path(__file__).parent / "data" / "k8s_periodics.csv"
TENANT = "demo"
EVERY_PERIODS = range(1, 21)
EVERY_JOBS_EACH = 12
CRON_STEPS = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20)
CRON_JOBS_EACH = 6

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")

_INSERT_REAL = """
INSERT INTO cronstream.job_definitions (tenant, name, cron, every, handler, timeout_seconds)
VALUES (%s, %s, %s, %s, 'log', %s)
"""
_INSERT_FAST = """
INSERT INTO cronstream.job_definitions (tenant, name, cron, every, handler, payload, timeout_seconds)
VALUES (%s, %s, %s, %s, 'http', %s, 10)
"""
_EDIT = "UPDATE cronstream.job_definitions SET every = %s WHERE job_id = %s"
_COMMITS = """
SELECT d.job_id, d.name, d.cron, d.every,
       (extract(epoch FROM pg_xact_commit_timestamp(d.xmin)) * 1000000)::bigint
FROM cronstream.job_definitions d WHERE d.tenant = %s ORDER BY d.job_id
"""
_COMMIT = """
SELECT (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint
FROM cronstream.job_definitions WHERE job_id = %s
"""


@dataclass(frozen=True, slots=True)
class RealJob:
    """A row of the real fleet."""

    name: str
    cron: str | None
    every: timedelta | None
    timeout: timedelta | None
    tenant: str


@dataclass(frozen=True, slots=True)
class FastJob:
    """A job that calls the receiver; exactly one of the two is set, in seconds."""

    job_id: int
    name: str
    every_seconds: int | None
    cron_step: int | None
    committed_us: int
    """When its INSERT was committed, by the database's clock."""


def duration(text: str) -> timedelta:
    """A Go duration of hours, minutes and seconds: ``4h30m``."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration such as 4h30m")
    hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


def real_fleet(file: Path = REAL_FLEET) -> list[RealJob]:
    """The periodic jobs of the Kubernetes project."""
    with file.open(newline="", encoding="utf-8") as lines:
        return [
            RealJob(
                name=row["name"],
                cron=row["cron"] or None,
                every=duration(row["interval"]) if row["interval"] else None,
                timeout=duration(row["timeout"]) if row["timeout"] else None,
                tenant=row["owner"],
            )
            for row in csv.DictReader(lines)
        ]


def insert_real(connection: psycopg.Connection[Any], fleet: list[RealJob]) -> dict[str, str]:
    """All in one transaction; the names of those that the database refused, and why.

    The fleet holds jobs that their owners parked at ``0 0 30 2 *``, a date that never comes: those, and no
    others, are refused.
    """
    refused = {}
    with connection.transaction():
        for job in fleet:
            timeout = job.timeout.total_seconds() if job.timeout else 300
            try:
                with connection.transaction():
                    connection.execute(_INSERT_REAL, (job.tenant, job.name, job.cron, job.every, timeout))
            except psycopg.errors.InvalidParameterValue as error:
                refused[job.name] = "; ".join(filter(None, (error.diag.message_primary, error.diag.message_detail)))
    return refused


def fast_schedules() -> Iterator[tuple[str, str | None, timedelta | None]]:
    """Name, cron and interval of each fast job: 240 intervals and 60 crons with seconds."""
    for period in EVERY_PERIODS:
        for number in range(1, EVERY_JOBS_EACH + 1):
            yield f"every-{period:02}s-{number:02}", None, timedelta(seconds=period)
    for step in CRON_STEPS:
        for number in range(1, CRON_JOBS_EACH + 1):
            yield f"cron-{step:02}s-{number:02}", f"*/{step} * * * * *", None


def insert_fast(connection: psycopg.Connection[Any], url: str) -> list[FastJob]:
    """Each in a transaction of its own, so that each interval counts from another instant."""
    payload = json.dumps({"url": url})
    for name, cron, every in fast_schedules():
        connection.execute(_INSERT_FAST, (TENANT, name, cron, every, payload))
    return [
        FastJob(
            job_id=job_id,
            name=name,
            every_seconds=None if every is None else round(every.total_seconds()),
            cron_step=None if cron is None else int(cron.split()[0].removeprefix("*/")),
            committed_us=committed_us,
        )
        for job_id, name, cron, every, committed_us in connection.execute(_COMMITS, (TENANT,))
    ]


def edit(connection: psycopg.Connection[Any], job: FastJob, every_seconds: int) -> int:
    """Give a job another interval; when that was committed, in microseconds by the database's clock."""
    connection.execute(_EDIT, (timedelta(seconds=every_seconds), job.job_id))
    row = connection.execute(_COMMIT, (job.job_id,)).fetchone()
    assert row is not None
    return int(row[0])
