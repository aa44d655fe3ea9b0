"""What tells one run's attempt from all others, as a stretch of time and a number.

    stretch   scheduled time / 2^20 us, request_id, attempt
    key       the microseconds within the stretch, then the job's id in 43 bits

What falls due within a second is one set of numbers, whether its times are alike, as those of cron are, or
all apart, as those of intervals are. Within a stretch keys are in order of time, then of job.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from cronstream.records import Batch, Int64s

Indices = npt.NDArray[np.intp]
Stretch = tuple[int, int, int]
"""(scheduled time in stretches since 1970, request_id, attempt)."""
Group = tuple[Stretch, Int64s, Indices]
"""A stretch, its keys in order, and of each the first item."""

FEW = 32
"""So many items are grouped one by one: what numpy asks for a call is as much as ten items."""
TIME_BITS = 20
ID_BITS = 43
_WITHIN = (1 << TIME_BITS) - 1


def have_key(job_ids: Int64s) -> npt.NDArray[np.bool_]:
    """Which ids are ones that a job may have: Postgres gives none out beyond 2^43."""
    return (job_ids >= 0) & (job_ids < 1 << ID_BITS)


def key_of(scheduled_us: int, job_id: int) -> int:
    """The key of one run within its stretch."""
    return (scheduled_us & _WITHIN) << ID_BITS | job_id


def by_stretch(batch: Batch, candidates: Indices, few: int = FEW) -> Iterator[Group]:
    """The candidates by stretch, in order; their job ids ``have_key``."""
    return _few_by_stretch(batch, candidates) if len(candidates) <= few else _many_by_stretch(batch, candidates)


def _few_by_stretch(batch: Batch, candidates: Indices) -> Iterator[Group]:
    columns = (batch.scheduled, batch.request_id, batch.attempt, batch.job_id)
    groups: dict[Stretch, dict[int, int]] = {}
    for index, scheduled_us, request_id, attempt, job_id in zip(
        candidates.tolist(), *(column[candidates].tolist() for column in columns), strict=True
    ):
        stretch = (scheduled_us >> TIME_BITS, request_id, attempt)
        groups.setdefault(stretch, {}).setdefault(key_of(scheduled_us, job_id), index)
    for stretch, first in sorted(groups.items()):
        keys = sorted(first)
        yield stretch, np.array(keys, np.int64), np.array([first[key] for key in keys], np.intp)


def _many_by_stretch(batch: Batch, candidates: Indices) -> Iterator[Group]:
    scheduled = batch.scheduled[candidates]
    columns = (batch.attempt[candidates], batch.request_id[candidates], scheduled >> TIME_BITS)
    keys = (scheduled & _WITHIN) << ID_BITS | batch.job_id[candidates]
    if all((column == column[0]).all() for column in columns):
        groups = [np.arange(len(candidates))]
    else:
        order = np.lexsort(columns)
        changes = np.any([np.diff(column[order]) != 0 for column in columns], axis=0)
        groups = np.split(order, np.flatnonzero(changes) + 1)
    for group in groups:
        attempt, request_id, time = (int(column[group[0]]) for column in columns)
        distinct, first = np.unique(keys[group], return_index=True)
        yield (time, request_id, attempt), distinct, candidates[group[first]]
