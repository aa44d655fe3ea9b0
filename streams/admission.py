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

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cronstream.records import Batch, Int64s, Kind, Source, are_runs
from streams.endings import cancelled
from streams.keys import Indices, Stretch, by_stretch, have_key
from streams.window import Keys, Mask, Origin, Row, Window

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
    """To the dead-letter topic: kinds that this version does not know, and runs of ids that no job can have."""
    duplicates: int
    """Runs that were admitted before, from another record or from this one."""
    again: bool
    """The record had been decided before; this repeats it."""


def admit(window: Window, batch: Batch, at: Source) -> Admission:
    """Decide about the triggers record at ``at``. The caller adds ``row`` to the window."""
    stored = window.row((Origin.TRIGGERS, at.offset), batch.token, batch.published_at)
    refused = stored.refused if stored else batch.token < window.newest_token_before(at.offset)
    runs = are_runs(batch.kind) & have_key(batch.job_id)
    skips, cancels = batch.kind == Kind.SKIP, batch.kind == Kind.CANCEL
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
    runs = (batch.kind == Kind.RUN) & have_key(batch.job_id)
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


_Passes = Callable[[Stretch, Int64s], Mask]


def _fresh(window: Window) -> _Passes:
    return lambda stretch, keys: ~window.known(stretch, keys)


def _repeat(decided: tuple[Keys, ...]) -> _Passes:
    held = {packed.stretch: packed.array() for packed in decided}
    return lambda stretch, keys: np.isin(keys, held.get(stretch, ()))


def _choose(batch: Batch, candidates: Indices, passes: _Passes) -> tuple[Indices, tuple[Keys, ...]]:
    """The candidates that pass, each run once, in the batch's order; and the same as packed keys."""
    chosen: list[Indices] = []
    admitted: list[Keys] = []
    for stretch, keys, index in by_stretch(batch, candidates):
        mask = passes(stretch, keys)
        if mask.any():
            chosen.append(index[mask])
            admitted.append(Keys.of(stretch, keys[mask]))
    return np.sort(np.concatenate(chosen)) if chosen else candidates[:0], tuple(admitted)


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
