"""From what is due to records: batches by partition, packed straight from the columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from coordinator.loaded import LoadedJobs
from coordinator.slots import Slots
from cronstream.records import MAX_BYTES, MAX_ITEMS, Batch, Item, in_batches
from cronstream.topics import partition_of


class Packed(NamedTuple):
    """One RUN item a slot, at the instant that is armed: a record but for when it is published."""

    partition: int
    slots: Slots
    batch: Batch

    def published(self, at_us: int) -> tuple[int, Batch]:
        """What to publish at that instant, and to which partition."""
        return self.partition, replace(self.batch, published_at=at_us)


def pack(jobs: LoadedJobs, slots: Slots, token: int) -> Iterator[Packed]:
    """Batches of what the slots are armed for."""
    if not len(slots):
        return
    partitions = jobs.partition[slots]
    order = np.argsort(partitions, kind="stable")
    slots, partitions = slots[order], partitions[order]
    starts = np.flatnonzero(np.diff(partitions, prepend=-1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(slots)], strict=True):
        yield from _cut(jobs, slots[start:end], int(partitions[start]), token)


def transactions(jobs: LoadedJobs, ready: deque[Packed], slots: Slots, token: int, most: int) -> Iterator[list[Packed]]:
    """What is due in transactions of at most so many items: first what is packed, then the other slots, packed as they
    are asked for.
    """
    while ready or slots.size:
        batches: list[Packed] = []
        room = most
        while ready and (not batches or len(ready[0].slots) <= room):
            batches.append(ready.popleft())
            room -= len(batches[-1].slots)
        if not ready and room > 0:
            batches += pack(jobs, slots[:room], token)
            slots = slots[room:]
        yield batches


def _cut(jobs: LoadedJobs, slots: Slots, partition: int, token: int) -> Iterator[Packed]:
    bodies = [jobs.work[slot] for slot in slots.tolist()]
    ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
    start = 0
    while start < len(slots):
        before = int(ends[start - 1]) if start else 0
        fits = int(np.searchsorted(ends, before + MAX_BYTES, side="right"))
        end = min(max(fits, start + 1), start + MAX_ITEMS)
        part = slots[start:end]
        count = len(part)
        batch = Batch(
            token,
            0,
            None,
            jobs.run_kind[part],
            jobs.job_id[part],
            jobs.next_us[part],
            np.zeros(count, np.int64),
            np.ones(count, np.int32),
            (ends[start:end] - before).astype(np.uint32),
            b"".join(bodies[start:end]),
        )
        yield Packed(partition, part, batch)
        start = end


def item_batches(
    items: Iterable[Item], *, partitions: int, token: int, published_at: int
) -> Iterator[tuple[int, Batch]]:
    """Single items, each job's in the order given, as (partition, batch) pairs."""
    by_partition: dict[int, list[Item]] = {}
    for item in items:
        by_partition.setdefault(partition_of(item.job_id, partitions), []).append(item)
    for partition, its_items in by_partition.items():
        for batch in in_batches(its_items):
            yield partition, Batch.of(batch, token=token, published_at=published_at)
