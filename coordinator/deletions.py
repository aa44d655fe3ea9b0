"""Deletions, planned and waiting to be told: at a bounded rate, after all that is due.

Of such a job nothing fires any more, and all that it owed is published. What is left is its ``cancel``, which ends
what may be open of it downstream, and costs as much there as a run: a statement that deletes many jobs would hold up
the runs that are due. So it waits its turn, and the plan with it: until both are out the job's changes are open in
Postgres, and a leader that follows plans the deletion anew.

A record costs streams as much as many items. So nobody goes alone while others wait: the turn comes when all that wait
may go, or as many as a transaction is to hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from coordinator.allowance import Allowance
from coordinator.writer import PlanRow
from cronstream.records import Int64s, Item

_TOGETHER = 1000
"""On-time work waits no longer than it takes to publish so many."""
_MOST_WAITING = 100_000
"""Some 60 MB. Of more the oldest are told at once."""


class Deletion(NamedTuple):
    """What is published of a deleted job, and what is stored then."""

    cancel: Item
    row: PlanRow


class Deletions:
    """One thread owns it: the dispatcher's. Instants in microseconds, by the database's clock."""

    def __init__(self, per_second: int, now_us: int, most: int = _MOST_WAITING) -> None:
        self._allowance = Allowance(per_second, now_us)
        self._together = min(per_second, _TOGETHER)
        self._most = most
        self._waiting: dict[int, Deletion] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def of(self, job_ids: Int64s) -> npt.NDArray[np.bool_]:
        """Which of many jobs are deleted and wait here."""
        waiting = self._waiting
        return np.array([job_id in waiting for job_id in job_ids.tolist()] if waiting else np.zeros(len(job_ids)), bool)

    def add(self, deletions: Iterable[Deletion]) -> None:
        """Each behind those that wait."""
        self._waiting.update((one.row.job_id, one) for one in deletions)

    def forget(self, job_ids: Iterable[int]) -> None:
        """Their changes are read again, or were."""
        for job_id in job_ids:
            self._waiting.pop(job_id, None)

    def take(self, now_us: int) -> list[Deletion]:
        """Those whose turn it is, oldest first."""
        allowed = self._next if self._allowance.left(now_us) >= self._next else 0
        self._allowance.spend(allowed)
        jobs = list(islice(self._waiting, max(allowed, len(self._waiting) - self._most)))
        return [self._waiting.pop(job_id) for job_id in jobs]

    def wait_seconds(self) -> float | None:
        """Until the next turn; None when none waits."""
        return self._allowance.wait_seconds(self._next) if self._waiting else None

    @property
    def _next(self) -> int:
        """How many go together next."""
        return min(len(self._waiting), self._together)
