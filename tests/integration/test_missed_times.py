"""What a day without a leader leaves in history: one row for many missed times, under each policy."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tests.support.installation import TestInstallation
from tests.support.poll import eventually

DEFINE = """
INSERT INTO cronstream.job_definitions (name, every, anchor, misfire_policy, catch_up_limit, misfire_grace, handler)
VALUES (%s, '1 second', '2020-01-01T00:00:00Z', %s, 3, '0', 'log') RETURNING job_id
"""
SKIPPED = """
SELECT reason, first_time, scheduled_time, run_count FROM cronstream.job_runs
WHERE job_id = %s AND outcome = 'skipped' AND run_count > 1000
"""
DAY = 86_400


def test_a_day_of_seconds_is_one_row_a_job(installation: TestInstallation) -> None:
    for module, node in (("streams", "streams1"), ("streams.sink", "sink1")):
        installation.start(module, node)
    first = installation.start("coordinator", "c1")
    with installation.connect() as connection:

        def value(statement: str, *parameters: Any) -> Any:
            row = connection.execute(statement, parameters).fetchone()  # type: ignore[arg-type]
            return None if row is None else row[0]

        jobs = {policy: value(DEFINE, policy, policy) for policy in ("FIRE_NOW", "SKIP", "CATCH_UP")}
        planned = "SELECT count(*) FROM cronstream.schedules WHERE next_run_at IS NOT NULL"
        eventually(lambda: value(planned) == len(jobs), within=60, says="every job is planned")
        first.terminate()  # one that is killed may leave a second on the log that is not advanced: the tail's
        first.wait()
        # as if that had been a day ago
        connection.execute("UPDATE cronstream.schedules SET next_run_at = next_run_at - interval '1 day'")
        installation.start("coordinator", "c2")
        rows = {
            policy: eventually(
                lambda job_id=job_id: connection.execute(SKIPPED, [job_id]).fetchall(), within=60, says=policy
            )
            for policy, job_id in jobs.items()
        }
    reasons = set()
    for policy, ((reason, first_time, last_time, count),) in rows.items():
        assert DAY - 60 < count < DAY + 120, policy
        assert last_time - first_time == timedelta(seconds=count - 1), "no second is missing between first and last"
        reasons.add(reason)
    assert len(reasons) == 3, "each policy says why"
