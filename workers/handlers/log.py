"""``log``: one structured line a run; for first steps and for measuring everything else."""

from __future__ import annotations

import logging

import msgspec

from workers.attempt import Attempt, Result, succeeded

logger = logging.getLogger("cronstream.jobs")


class LogHandler:
    """Writes what it was given."""

    async def run(self, attempt: Attempt) -> Result:
        fields = {
            "action": "job_ran",
            "tenant": attempt.work.tenant,
            "job": attempt.work.name,
            "job_id": attempt.job_id,
            "scheduled_time": attempt.scheduled_time,
            "attempt": attempt.attempt,
            "token": attempt.token,
            "payload": None if attempt.work.payload is None else attempt.work.payload.decode("utf-8", "replace"),
        }
        logger.info("a job ran %s", msgspec.json.encode(fields).decode())
        return succeeded()

    async def close(self) -> None:
        """Holds nothing."""
