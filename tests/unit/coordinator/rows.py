"""Definitions as the database gives them, for tests."""

from __future__ import annotations

from typing import Any

from coordinator.arrivals import Job, JobColumns
from coordinator.loaded import LoadedJobs
from coordinator.rules import Rule
from tests.properties.term.tables import DEFAULTS, WORK

SECOND = 1_000_000


def columns(**given: Any) -> dict[str, Any]:
    """A definition's columns; times in microseconds."""
    return {**DEFAULTS, **WORK, "name": "job", "misfire_grace_us": 60 * SECOND, **given}


def hold(jobs: LoadedJobs, *, next_us: int, rule: Rule, job_id: int = 1, version: int = 1, work: bytes = b"") -> int:
    """Hold one job; returns its slot."""
    return int(jobs.hold(JobColumns.of([Job(job_id, next_us, version, rule, work)]))[0])
