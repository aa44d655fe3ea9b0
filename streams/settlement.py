"""What an outcomes record changes in the status of its jobs. Pure.

An outcome may come twice, late, out of order or for a run that nobody heard of.
Of a run the highest attempt counts; of an attempt the first end counts, and a
start after the end only fills in when it began. A job's status remembers the
outcomes offset it includes, so a record that is read again changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from cronstream.bodies import PoisonItem, Report, Skip, report_of, skip_of
from cronstream.records import Batch, Item, Kind
from streams.status import COUNTED, KEPT_RUNS, JobStatus, RunStatus

NOTE_CHARACTERS = 300
"""How much of an error the status keeps; history has the rest."""


@dataclass(slots=True)
class Settlement:
    """What follows from one outcomes record."""

    statuses: dict[int, JobStatus] = field(default_factory=dict)
    """The jobs whose status changed, by id."""
    poison: list[tuple[int, str]] = field(default_factory=list)
    """Items that cannot be read, by index, and why: to the dead-letter topic."""
    ended: dict[Kind, int] = field(default_factory=dict)
    """How many attempts ended how, and jobs were deleted (CANCEL); those already known are not counted."""
    running: int = 0
    """By how many the runs under way became more, of those that the statuses keep."""


def settle(known: Callable[[int], JobStatus | None], batch: Batch, offset: int) -> Settlement:
    """Apply the record at ``offset`` of outcomes. ``known`` answers a job's status before it."""
    result = Settlement()
    done: set[int] = set()
    for index in range(len(batch)):
        try:
            item = batch.item(index)
            job_id = item.job_id
            if job_id in done:
                continue
            status = result.statuses.get(job_id) or known(job_id) or JobStatus()
            if job_id not in result.statuses and status.offset >= offset:
                done.add(job_id)
                continue
            changed = _apply(status, item, result)
        except PoisonItem as error:
            result.poison.append((index, str(error)))
            continue
        result.running += changed.running - status.running
        result.statuses[job_id] = msgspec.structs.replace(changed, offset=offset)
    return result


def _apply(status: JobStatus, item: Item, result: Settlement) -> JobStatus:
    if item.kind is Kind.CANCEL:
        if not status.deleted:
            result.ended[Kind.CANCEL] = result.ended.get(Kind.CANCEL, 0) + 1
        return msgspec.structs.replace(status, deleted=True)
    if item.kind is Kind.SKIPPED:
        skip = skip_of(item.body)
        return _merge(status, _skipped(item, skip), skip.tenant, skip.name, skip.count, result)
    if item.kind is Kind.STARTED or item.kind.is_end:
        report = report_of(item.body)
        return _merge(status, _reported(item, report), report.tenant, report.name, 1, result)
    raise PoisonItem(f"{item.kind.name} is no outcome")


def _skipped(item: Item, skip: Skip) -> RunStatus:
    return RunStatus(item.scheduled_us, item.request_id, 0, item.kind, note=_short(skip.reason))


def _reported(item: Item, report: Report) -> RunStatus:
    return RunStatus(
        item.scheduled_us,
        item.request_id,
        item.attempt,
        item.kind,
        report.started_at,
        report.finished_at,
        report.worker,
        _short(report.error),
    )


def _merge(status: JobStatus, new: RunStatus, tenant: str, name: str, weight: int, result: Settlement) -> JobStatus:
    kind = Kind(new.kind)
    old = next((run for run in status.runs if _same_run(run, new)), None)
    if old is not None and not _supersedes(new, old):
        if kind is Kind.STARTED and new.attempt == old.attempt and old.started_at is None:
            filled = msgspec.structs.replace(old, started_at=new.started_at)
            return msgspec.structs.replace(status, runs=tuple(filled if run is old else run for run in status.runs))
        return status
    counts = status.counts
    if kind is not Kind.STARTED:
        result.ended[kind] = result.ended.get(kind, 0) + weight
        counts = tuple(
            count + weight if counted is kind else count for counted, count in zip(COUNTED, counts, strict=True)
        )
    if old is not None:
        runs = tuple(new if run is old else run for run in status.runs)
    else:
        runs = _bounded((*status.runs, new))
    return msgspec.structs.replace(status, tenant=tenant, name=name, counts=counts, runs=runs)


def _same_run(one: RunStatus, other: RunStatus) -> bool:
    return (one.scheduled, one.request_id) == (other.scheduled, other.request_id)


def _supersedes(new: RunStatus, old: RunStatus) -> bool:
    """A later attempt, or the end of the attempt that is running."""
    if new.attempt != old.attempt:
        return new.attempt > old.attempt
    return old.kind == Kind.STARTED and new.kind != Kind.STARTED


def _bounded(runs: tuple[RunStatus, ...]) -> tuple[RunStatus, ...]:
    """Without the run that was heard of first, ended ones before running ones."""
    if len(runs) <= KEPT_RUNS:
        return runs
    ended = (index for index, run in enumerate(runs[:-1]) if run.kind != Kind.STARTED)
    out = next(ended, 0)
    return runs[:out] + runs[out + 1 :]


def _short(text: str | None) -> str | None:
    return text if text is None else text[:NOTE_CHARACTERS]
