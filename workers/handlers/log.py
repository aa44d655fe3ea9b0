"""``log``: one structured line a run; for first steps and for measuring everything else."""

from __future__ import annotations

import logging

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
            "payload": (attempt.work.payload or b"").decode("utf-8", "replace"),
        }
        logger.info("A job ran", extra=fields)
        return succeeded()

    async def close(self) -> None:
        """Holds nothing."""
