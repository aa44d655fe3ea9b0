"""What was missed, waiting its turn: after an outage on-time work goes first, the backlog at a bounded rate.

A job here is held but not armed in the wheel. It stands by its oldest unpublished
time, the job with the oldest goes first, and everything that it owes by then is
judged and published together, so within a job the order holds. An entry counts
only while its job has not moved since; a job that was edited meanwhile is simply
not found any more.
"""

from __future__ import annotations

from heapq import heappop, heappush

from coordinator.allowance import Allowance
from coordinator.loaded import LoadedJobs


class Backlog:
    """Misfired jobs by their oldest time. Instants in microseconds, by the database's clock."""

    def __init__(self, jobs: LoadedJobs, per_second: int, now_us: int) -> None:
        self._jobs = jobs
        self._allowance = Allowance(per_second, now_us)
        self._waiting: list[tuple[int, int, int, int]] = []

    def __len__(self) -> int:
        """How many entries wait, those that count no more included."""
        return len(self._waiting)

    def add(self, slot: int) -> None:
        """A job whose armed time was missed."""
        jobs = self._jobs
        heappush(self._waiting, (int(jobs.next_us[slot]), slot, int(jobs.job_id[slot]), int(jobs.version[slot])))

    def take(self, now_us: int, most: int) -> list[int]:
        """The slots whose turn it is, oldest first, at most so many."""
        allowed = min(most, self._allowance.left(now_us))
        slots: list[int] = []
        while self._waiting and len(slots) < allowed:
            _, slot, job_id, version = heappop(self._waiting)
            if self._jobs.job_id[slot] == job_id and self._jobs.version[slot] == version:
                slots.append(slot)
        return slots

    def spend(self, items: int) -> None:
        """So many items were published for the slots taken."""
        self._allowance.spend(items)

    def wait_seconds(self) -> float | None:
        """Until the next job's turn; None when nobody waits."""
        return self._allowance.wait_seconds() if self._waiting else None
