"""What rows of ``schedules`` will say once the writes that are queued are done.

For jobs in the wheel ``LoadedJobs`` knows. This is about the others: those that
left the wheel while their last write was queued, and those just planned. A row
counts as read only if it was read after that write:

    write 7 put        write 7 done       read, as_of 7        the arrival is taken
    ────┼──────────────────┼───────────────────┼────────────────────┼──────►
        └───────────── the entry here is right ─────────────────────┘ then the row is
"""

from __future__ import annotations

import itertools
from collections import deque
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coordinator.arrivals import Job
from cronstream.records import Int64s


class Row(NamedTuple):
    """A job's row once write ``number`` is done."""

    number: int
    next_us: int
    """NONE: there is none."""
    version: int


class Unwritten:
    """One thread owns it: the dispatcher's. Numbers of writes only grow."""

    def __init__(self) -> None:
        # Both by number, as entries are put at the end and numbers grow.
        self._rows: dict[int, Row] = {}  # none of a job that is held: a new entry goes to the end
        self._anchors: dict[int, tuple[int, int | None]] = {}
        self._planned: deque[tuple[int, Job]] = deque()

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._rows

    def of(self, job_ids: Int64s) -> npt.NDArray[np.bool_]:
        """Which of many jobs are."""
        rows = self._rows
        return np.array([job_id in rows for job_id in job_ids.tolist()] if rows else np.zeros(len(job_ids)), np.bool_)

    def row(self, job_id: int) -> Row | None:
        """What the row will say, if the job is one of these."""
        return self._rows.get(job_id)

    def anchor(self, job_id: int, read: int | None) -> int | None:
        """The anchor that the row will have; ``read`` is what it had."""
        return self._anchors.get(job_id, (0, read))[1]

    @property
    def has_planned(self) -> bool:
        """True while planned jobs wait for their write."""
        return bool(self._planned)

    def all_left(self, number: int, job_ids: list[int], next_us: list[int], versions: list[int]) -> None:
        """Jobs that were held have left the wheel; write ``number`` is their last."""
        self._rows.update(zip(job_ids, map(Row, repeat(number), next_us, versions), strict=True))

    def left(self, job_id: int, row: Row) -> None:
        """A job is not in the wheel (any more); ``row`` is its last write."""
        self._rows.pop(job_id, None)
        self._rows[job_id] = row

    def planned(self, job_id: int, row: Row, anchor_us: int | None, job: Job | None) -> None:
        """A job was planned; ``job`` is to be held when the plan is written, if there is a next time."""
        self.left(job_id, row)
        self._anchors.pop(job_id, None)
        self._anchors[job_id] = (row.number, anchor_us)
        if job is not None:
            self._planned.append((row.number, job))

    def take_written(self, flushed: int) -> list[Job]:
        """The planned jobs whose plan is written now, but for those planned anew or forgotten since."""
        jobs = []
        while self._planned and self._planned[0][0] <= flushed:
            number, job = self._planned.popleft()
            row = self._rows.get(job.job_id)
            if row is not None and row.number == number:
                jobs.append(job)
        return jobs

    def forget(self, job_id: int) -> None:
        """The job is held again, or its row is to be read as it is."""
        self._rows.pop(job_id, None)

    def retire(self, as_of: int) -> None:
        """Rows read after write ``as_of`` was done are right about what it covers."""
        for job_id in list(itertools.takewhile(lambda job_id: self._rows[job_id].number <= as_of, self._rows)):
            del self._rows[job_id]
        for job_id in list(itertools.takewhile(lambda job_id: self._anchors[job_id][0] <= as_of, self._anchors)):
            del self._anchors[job_id]
