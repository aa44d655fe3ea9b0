"""Which items of triggers, and which retries, become attempts. Pure: reads a window, changes nothing.

- *Token*: the schedule's own items are refused if a newer token was seen at a
  smaller offset of the partition. Refused items go to the dead-letter topic.
- *Once*: a run's attempt passes if no row in the window holds it.
- *Again*: a record that has a row (it was redelivered) gets that row's decision.

A record's age refuses nothing. Skips become outcomes. Handed on to settlement, which owns what is known of a
job, are cancels, final as job ids are never reused, so that no token refuses them; and, once admitted,
runs that must not overlap others of their job.

A retry was admitted once, so no token refuses it; of a deleted job it ends as cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from cronstream.records import Batch, Int64s, Kind, Source, are_runs
from streams.endings import cancelled
from streams.window import Ids, Instant, Mask, Origin, Row, Window

Indices = npt.NDArray[np.intp]

FEW = 32
"""So many items are grouped one by one: what numpy asks for a call is as much as ten items."""
ATTEMPTS_PART = 0
OUTCOMES_PART = 1


@dataclass(frozen=True, slots=True)
class Admission:
    """What follows from one record of triggers or due retries."""

    row: Row
    attempts: Batch | None
    """To the attempts topic."""
    outcomes: Batch | None
    """To the outcomes topic: what was skipped or cancelled, jobs that were deleted, runs that must not overlap."""
    refused: Batch | None
    """To the dead-letter topic: published by a leader that had been followed."""
    strange: Batch | None
    """To the dead-letter topic: kinds that this version does not know."""
    duplicates: int
    """Runs that were admitted before, from another record or from this one."""
    again: bool
    """The record had been decided before; this repeats it."""


def admit(window: Window, batch: Batch, at: Source) -> Admission:
    """Decide about the triggers record at ``at``. The caller adds ``row`` to the window."""
    stored = window.row((Origin.TRIGGERS, at.offset), batch.token, batch.published_at)
    refused = stored.refused if stored else batch.token < window.newest_token_before(at.offset)
    runs, skips, cancels = are_runs(batch.kind), batch.kind == Kind.SKIP, batch.kind == Kind.CANCEL
    stale = (runs | skips) & (batch.request_id == 0) & refused
    chosen, admitted = _choose(
        batch, np.flatnonzero(runs & ~stale), _repeat(stored.admitted) if stored else _fresh(window)
    )
    row = stored or Row(
        at.offset, batch.token, batch.published_at, window.clock_after(batch.published_at), refused, admitted
    )
    at_once = batch.kind[chosen] == Kind.RUN
    handed_on = (skips & ~stale) | cancels
    no_overlap_asked = at_once.all()
    if not no_overlap_asked:
        handed_on[chosen[~at_once]] = True
    return Admission(
        row=row,
        attempts=_part(batch, chosen if no_overlap_asked else chosen[at_once], at, ATTEMPTS_PART),
        outcomes=_as_outcomes(_part(batch, np.flatnonzero(handed_on), at, OUTCOMES_PART)),
        refused=_part(batch, np.flatnonzero(stale), at, ATTEMPTS_PART),
        strange=_part(batch, np.flatnonzero(~(runs | skips | cancels)), at, ATTEMPTS_PART),
        duplicates=int(np.count_nonzero(runs & ~stale)) - len(chosen),
        again=stored is not None,
    )


def admit_retries(window: Window, batch: Batch, at: Source, deleted: Callable[[int], bool]) -> Admission:
    """Decide about the record of due retries at ``at``. The caller adds ``row`` to the window."""
    stored = window.row((Origin.RETRIES, at.offset), batch.token, batch.published_at)
    runs = batch.kind == Kind.RUN
    if stored is not None:
        chosen, admitted = _choose(batch, np.flatnonzero(runs), _repeat(stored.admitted))
        ended, gone = _choose(batch, np.flatnonzero(runs), _repeat(stored.cancelled))
    else:
        over = np.fromiter(map(deleted, batch.job_id.tolist()), np.bool_, len(batch))
        chosen, admitted = _choose(batch, np.flatnonzero(runs & ~over), _fresh(window))
        ended, gone = _choose(batch, np.flatnonzero(runs & over), _fresh(window))
    clock = window.clock_after(batch.published_at)
    row = stored or Row(at.offset, batch.token, batch.published_at, clock, False, admitted, Origin.RETRIES, gone)
    attempts = _part(batch, chosen, at, ATTEMPTS_PART)
    return Admission(
        row=row,
        attempts=None if attempts is None else replace(attempts, not_before=None),
        outcomes=_as_cancelled(batch, ended, at),
        refused=None,
        strange=_part(batch, np.flatnonzero(~runs), at, ATTEMPTS_PART),
        duplicates=int(np.count_nonzero(runs)) - len(chosen) - len(ended),
        again=stored is not None,
    )


_Passes = Callable[[Instant, Int64s], Mask]


def _fresh(window: Window) -> _Passes:
    return lambda instant, ids: ~window.known(instant, ids)


def _repeat(decided: tuple[Ids, ...]) -> _Passes:
    held = {packed.instant: packed.array() for packed in decided}
    return lambda instant, ids: np.isin(ids, held.get(instant, ()))


def _choose(batch: Batch, candidates: Indices, passes: _Passes) -> tuple[Indices, tuple[Ids, ...]]:
    """The candidates that pass, each run once, in the batch's order; and the same as packed ids."""
    chosen: list[Indices] = []
    admitted: list[Ids] = []
    for instant, ids, index in by_instant(batch, candidates):
        mask = passes(instant, ids)
        if mask.any():
            chosen.append(index[mask])
            admitted.append(Ids.of(instant, ids[mask]))
    return np.sort(np.concatenate(chosen)) if chosen else candidates[:0], tuple(admitted)


Group = tuple[Instant, Int64s, Indices]
"""An instant, its job ids in order, and of each the first item."""


def by_instant(batch: Batch, candidates: Indices, few: int = FEW) -> Iterator[Group]:
    """The candidates by instant, in order."""
    if len(candidates) <= few:
        return _few_by_instant(batch, candidates)
    return _many_by_instant(batch, candidates)


def _few_by_instant(batch: Batch, candidates: Indices) -> Iterator[Group]:
    columns = (batch.scheduled, batch.request_id, batch.attempt, batch.job_id)
    groups: dict[Instant, dict[int, int]] = {}
    for index, *instant, job_id in zip(
        candidates.tolist(), *(column[candidates].tolist() for column in columns), strict=True
    ):
        groups.setdefault((instant[0], instant[1], instant[2]), {}).setdefault(job_id, index)
    for at, first in sorted(groups.items()):
        ids = sorted(first)
        yield at, np.array(ids, np.int64), np.array([first[job_id] for job_id in ids], np.intp)


def _many_by_instant(batch: Batch, candidates: Indices) -> Iterator[Group]:
    columns = (batch.attempt[candidates], batch.request_id[candidates], batch.scheduled[candidates])
    if all((column == column[0]).all() for column in columns):
        groups = [candidates]
    else:
        order = np.lexsort(columns)
        changes = np.any([np.diff(column[order]) != 0 for column in columns], axis=0)
        groups = np.split(candidates[order], np.flatnonzero(changes) + 1)
    for index in groups:
        one = index[0]
        ids, first = np.unique(batch.job_id[index], return_index=True)
        yield (int(batch.scheduled[one]), int(batch.request_id[one]), int(batch.attempt[one])), ids, index[first]


def _part(batch: Batch, index: Indices, at: Source, part: int) -> Batch | None:
    if not len(index):
        return None
    source = Source(at.topic, at.partition, at.offset, part)
    return (batch if len(index) == len(batch) else batch.select(index)).from_source(source)


def _as_outcomes(batch: Batch | None) -> Batch | None:
    if batch is None:
        return None
    skips, cancels = batch.kind == Kind.SKIP, batch.kind == Kind.CANCEL
    kind = np.where(skips, np.uint8(Kind.SKIPPED), batch.kind)
    return replace(batch, kind=kind, attempt=np.where(skips | cancels, np.int32(0), batch.attempt))


def _as_cancelled(batch: Batch, index: Indices, at: Source) -> Batch | None:
    if not len(index):
        return None
    items = [cancelled(batch.item(int(one)), batch.published_at) for one in index]
    source = Source(at.topic, at.partition, at.offset, OUTCOMES_PART)
    return Batch.of(items, token=batch.token, published_at=batch.published_at, source=source)
