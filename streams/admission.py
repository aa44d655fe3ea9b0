"""Which items of a triggers record become attempts. Pure: reads a window, changes nothing.

- *Token*: the schedule's own items are refused if a newer token was seen at a
  smaller offset of the partition. Refused items go to the dead-letter topic.
- *Once*: a run's attempt passes if no row in the window holds it.
- *Again*: a record that has a row (it was redelivered) gets that row's decision.

A record's age refuses nothing. Skips become outcomes; a cancel is handed on to
settlement, which owns what is known of a job; it is final, as job ids are never
reused, so no token refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cronstream.records import Batch, Int64s, Kind, Source, are_runs
from streams.window import Ids, Instant, Mask, Row, Window

Indices = npt.NDArray[np.intp]

ATTEMPTS_PART = 0
OUTCOMES_PART = 1


@dataclass(frozen=True, slots=True)
class Admission:
    """What follows from one triggers record."""

    row: Row
    attempts: Batch | None
    """To the attempts topic."""
    outcomes: Batch | None
    """To the outcomes topic: what was skipped, and jobs that were deleted."""
    refused: Batch | None
    """To the dead-letter topic: published by a leader that had been followed."""
    strange: Batch | None
    """To the dead-letter topic: kinds that this version does not know."""
    duplicates: int
    """Runs that were admitted before, from another record or from this one."""
    again: bool
    """The record had been decided before; this repeats it."""


def admit(window: Window, batch: Batch, at: Source) -> Admission:
    """Decide about the record at ``at``. The caller adds ``row`` to the window."""
    stored = window.row(at.offset, batch.token, batch.published_at)
    refused = stored.refused if stored else batch.token < window.newest_token_before(at.offset)
    runs, skips, cancels = are_runs(batch.kind), batch.kind == Kind.SKIP, batch.kind == Kind.CANCEL
    stale = (runs | skips) & (batch.request_id == 0) & refused
    chosen, admitted = _choose(batch, np.flatnonzero(runs & ~stale), _repeat(stored) if stored else _fresh(window))
    row = stored or Row(
        at.offset, batch.token, batch.published_at, window.clock_after(batch.published_at), refused, admitted
    )
    return Admission(
        row=row,
        attempts=_as_attempts(_part(batch, chosen, at, ATTEMPTS_PART)),
        outcomes=_as_outcomes(_part(batch, np.flatnonzero((skips & ~stale) | cancels), at, OUTCOMES_PART)),
        refused=_part(batch, np.flatnonzero(stale), at, ATTEMPTS_PART),
        strange=_part(batch, np.flatnonzero(~(runs | skips | cancels)), at, ATTEMPTS_PART),
        duplicates=int(np.count_nonzero(runs & ~stale)) - len(chosen),
        again=stored is not None,
    )


_Passes = Callable[[Instant, Int64s], Mask]


def _fresh(window: Window) -> _Passes:
    return lambda instant, ids: ~window.known(instant, ids)


def _repeat(row: Row) -> _Passes:
    held = {packed.instant: packed.array() for packed in row.admitted}
    return lambda instant, ids: np.isin(ids, held.get(instant, ()))


def _choose(batch: Batch, candidates: Indices, passes: _Passes) -> tuple[Indices, tuple[Ids, ...]]:
    """The candidates that pass, each run once, in the batch's order; and the same as packed ids."""
    chosen: list[Indices] = []
    admitted: list[Ids] = []
    for instant, index in _by_instant(batch, candidates):
        ids, first = np.unique(batch.job_id[index], return_index=True)
        mask = passes(instant, ids)
        if mask.any():
            chosen.append(index[first[mask]])
            admitted.append(Ids.of(instant, ids[mask]))
    return np.sort(np.concatenate(chosen)) if chosen else candidates[:0], tuple(admitted)


def _by_instant(batch: Batch, candidates: Indices) -> Iterator[tuple[Instant, Indices]]:
    if not len(candidates):
        return
    columns = (batch.attempt[candidates], batch.request_id[candidates], batch.scheduled[candidates])
    if all((column == column[0]).all() for column in columns):
        groups = [candidates]
    else:
        order = np.lexsort(columns)
        changes = np.any([np.diff(column[order]) != 0 for column in columns], axis=0)
        groups = np.split(candidates[order], np.flatnonzero(changes) + 1)
    for index in groups:
        one = index[0]
        yield (int(batch.scheduled[one]), int(batch.request_id[one]), int(batch.attempt[one])), index


def _part(batch: Batch, index: Indices, at: Source, part: int) -> Batch | None:
    if not len(index):
        return None
    source = Source(at.topic, at.partition, at.offset, part)
    return (batch if len(index) == len(batch) else batch.select(index)).from_source(source)


def _as_attempts(batch: Batch | None) -> Batch | None:
    if batch is None or (batch.kind == Kind.RUN).all():
        return batch
    return replace(batch, kind=np.full(len(batch), Kind.RUN, np.uint8))


def _as_outcomes(batch: Batch | None) -> Batch | None:
    if batch is None:
        return None
    kind = np.where(batch.kind == Kind.SKIP, Kind.SKIPPED, batch.kind).astype(np.uint8)
    return replace(batch, kind=kind, attempt=np.zeros(len(batch), np.int32))
