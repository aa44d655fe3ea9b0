"""What users do to each other: a transaction that stays open over a thousand jobs, columns of their own."""

from __future__ import annotations

from tests.faults.events import Edit
from tests.faults.faults.scene import Disturb, Hit, Scene

_TOUCH = "UPDATE cronstream.job_definitions SET backoff_seconds = %s WHERE job_id = ANY(%s)"
_COMMITTED = """
SELECT (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint
FROM cronstream.job_definitions WHERE job_id = %s
"""


def open_transaction(scene: Scene) -> Hit:
    """A thousand jobs that fire each minute are edited, no time of theirs moved, and the commit waits."""
    workload = scene.workload
    jobs = [
        job_id
        for job_id, name in workload.names.items()
        if name.startswith("every-minute-") and job_id in workload.rules
    ]
    with scene.cluster.connect(autocommit=False) as connection:
        connection.execute(_TOUCH, [20 + scene.random.random(), jobs])
        seconds = scene.sleep(scene.longest_outage, scene.longest_outage * 2)
        connection.commit()
        row = connection.execute(_COMMITTED, [jobs[0]]).fetchone()
    assert row is not None
    scene.cluster.recorder.record(*(Edit(job_id, row[0], workload.rules[job_id]) for job_id in jobs))
    return Hit("users", f"{len(jobs)} jobs locked for {seconds:.1f} s")


def alter_table(scene: Scene) -> Hit:
    """Columns come, get a default, change their name and go, while edits are captured."""
    for change in (
        "ADD COLUMN note text",
        "ADD COLUMN noted_at timestamptz DEFAULT now()",
        "RENAME COLUMN note TO remark",
        "RENAME COLUMN remark TO note",
        "DROP COLUMN note, DROP COLUMN noted_at",
    ):
        with scene.workload.lock:
            scene.cluster.query(f"ALTER TABLE cronstream.job_definitions {change}")
        scene.sleep(0.5, 1)
    return Hit("job_definitions", "two columns came and went")


FAULTS: dict[str, Disturb] = {"open transaction": open_transaction, "alter the table": alter_table}
