"""What is counted once from a partition's table, and then kept by its lane: runs under way, the index of jobs.

The count runs beside the lanes in small steps, since a table may hold a million jobs; it
sees the table as it was when the lane was opened, so the lane's changes are added to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from itertools import islice

from cronstream.clock import Clock
from streams.index import JobIndex, entry_of
from streams.status import JobStatus, job_of

ROWS_AT_ONCE = 500
PAUSE_SECONDS = 0.002


class Running:
    """The counts of the owned partitions, of one generation of lanes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at_opening: dict[int, int] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self, partition: int, rows: Iterator[tuple[bytes, bytes]], index: JobIndex) -> None:
        """Count the rows of a partition whose lane is about to open, and enter them into its index."""
        count = self._count(partition, rows, index)
        self._tasks.append(asyncio.create_task(count, name=f"count running [{partition}]"))

    async def stop(self) -> None:
        """The partitions go: let go of their tables and forget the counts."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks, self._at_opening = [], {}

    def total(self, since_opening: Mapping[int, int]) -> int | None:
        """Given each owned partition's change since its lane was opened; None until all are counted."""
        if not since_opening.keys() <= self._at_opening.keys():
            return None
        return sum(self._at_opening[partition] + change for partition, change in since_opening.items())

    def is_counted(self, partition: int) -> bool:
        """True once all of the partition's rows were seen."""
        return partition in self._at_opening

    async def _count(self, partition: int, rows: Iterator[tuple[bytes, bytes]], index: JobIndex) -> None:
        running = 0
        try:
            while some := [(job_of(key), JobStatus.decode(value)) for key, value in islice(rows, ROWS_AT_ONCE)]:
                running += sum(status.running for _, status in some)
                index.put_older(entry_of(job_id, status) for job_id, status in some)
                await self._clock.asleep(PAUSE_SECONDS)
        finally:
            del rows
        self._at_opening[partition] = running
