"""InOrder: a job's scheduled runs are admitted in the order of their scheduled times."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.history import History
from tests.faults.judges.breach import Breach
from tests.faults.oracle import Expected


def in_order(history: History, expected: Expected) -> Iterator[Breach]:
    """First attempts of the schedule's own runs, as they stand on the attempts topic."""
    newest: dict[int, int] = {}
    for attempt in history.admitted:
        if attempt.attempt != 1 or attempt.request_id != 0:
            continue
        before = newest.get(attempt.job_id)
        if before is not None and attempt.scheduled_us < before:
            what = f"admitted after the run of {before}"
            yield Breach("InOrder", what, attempt.job_id, attempt.scheduled_us)
        newest[attempt.job_id] = max(attempt.scheduled_us, before or 0)
