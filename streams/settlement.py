"""What follows from outcomes records: the status of their jobs, retries, dead letters, whose turn it is. Pure.

An outcome may come twice, late, out of order or for a run that nobody heard of.
Of a run the highest attempt counts; of an attempt the first end counts, and a
start after the end only fills in when it began. So the first end alone, of those that a job's status
remembers, is followed by a retry; admission drops a second retry besides.

Records are settled in steps: some of them in their order, then all effects together. A job's status says which
outcomes offset it includes, and with which record of that step the job's part began. To the status a record is

    above            news: it changes the status
    of that step     read again, after a crash between the step's effects: it changes nothing, and what follows
                     from it is decided again, alike
    below            over: all its effects were acknowledged before that step began

Whose turn it is can be decided again from before one record alone. So a job whose runs must not overlap is in
one record of a step at most: the next such record begins the next step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from cronstream import dead_letters, skips
from cronstream.bodies import PoisonItem, Report, Skip, deleted_of, report_of, skip_of
from cronstream.dead_letters import Subject
from cronstream.records import Batch, Item, Kind
from streams import overlap
from streams.endings import cancelled, skipped
from streams.overlap import Overlap, Turn, Waiting
from streams.status import COUNTED, KEPT_RUNS, JobStatus, RunStatus
from streams.tries import UNSUCCESSFUL, GivenUp, next_try

NOTE_CHARACTERS = 300
"""How much of an error the status keeps; history has the rest."""
_STARTED = Kind.STARTED
"""Asked for several times an item, and an enumeration looks its members up in Python (until 3.12)."""
_ARRIVALS = frozenset({Kind.RUN_QUEUED, Kind.RUN_ALONE})
_ENDS = UNSUCCESSFUL | {Kind.SUCCEEDED, Kind.CANCELLED}


@dataclass(frozen=True, slots=True)
class Refusal:
    """An item for the dead-letter topic, by its index in the record."""

    index: int
    reason: str
    error: str
    subject: Subject | None = None
    """The run, if one has come to its end."""


@dataclass(slots=True)
class Following:
    """What follows from one record."""

    retries: list[Item] = field(default_factory=list)
    """Runs to be tried again, each not before its instant."""
    starts: list[tuple[int, int, Item]] = field(default_factory=list)
    """Runs whose turn it is, with their tokens and when they were published: to the attempts topic."""
    closed: list[Item] = field(default_factory=list)
    """Runs that came to their end here: skipped, or cancelled. To the outcomes topic."""
    refused: list[Refusal] = field(default_factory=list)
    """Runs given up, and items that cannot be read."""


@dataclass(slots=True)
class Settlement:
    """What a step writes, and what it counted."""

    statuses: dict[int, JobStatus] = field(default_factory=dict)
    """The jobs whose status changed, by id."""
    waiting: dict[bytes, bytes | None] = field(default_factory=dict)
    """Runs that wait from now on, and rows of those that waited; to be written before the statuses."""
    ended: dict[Kind, int] = field(default_factory=dict)
    """How many attempts ended how, and jobs were deleted (CANCEL); those already known are not counted."""
    running: int = 0
    """By how many the runs under way became more, of those that the statuses keep."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What settlement reads: rows as they were before the step."""

    status: Callable[[int], JobStatus | None]
    waiting: Callable[[bytes], bytes | None]
    queue_limit: int
    """How many runs of a job may wait."""


@dataclass(slots=True)
class _Job:
    """One job while the step is settled."""

    job_id: int
    since: int
    """The first record of the step that it is in."""
    before: JobStatus
    status: JobStatus
    turns: Overlap | None
    again: bool = False
    """The status includes the record: only what follows from it is wanted."""
    arrivals_above: int = -1
    """The triggers offset up to which arrivals are known."""
    changed_at: int = -1
    """The last record that changed it."""
    followed: set[tuple[int, int, int]] = field(default_factory=set)
    """Ends in this record that something followed from: (scheduled, request_id, attempt)."""

    @property
    def takes_turns(self) -> bool:
        """Its runs must not overlap, or must not have."""
        return not (self.turns is self.before.overlap is self.before.overlap_before is None)


class Step:
    """Records that are settled together, one after the other."""

    _batch: Batch
    _offset: int
    _following: Following

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._jobs: dict[int, _Job] = {}
        self._take_turns: set[int] = set()
        self._result = Settlement()

    def takes(self, batch: Batch) -> bool:
        """Whether the record may be in this step beside those before."""
        return self._take_turns.isdisjoint(batch.job_id.tolist()) if self._take_turns else True

    def settle(self, batch: Batch, offset: int) -> Following:
        """Apply the record at ``offset`` of outcomes, the next one of the partition."""
        self._batch = batch
        self._offset = offset
        self._following = following = Following()
        jobs: dict[int, tuple[_Job, JobStatus, Overlap | None] | None] = {}
        for index, item in enumerate(batch.each()):
            try:
                if isinstance(item, PoisonItem):
                    raise item
                if item.job_id not in jobs:
                    job = self._job(item.job_id)
                    jobs[item.job_id] = None if job is None else (job, job.status, job.turns)
                if (known := jobs[item.job_id]) is not None:
                    self._apply(known[0], index, item)
            except PoisonItem as error:
                following.refused.append(Refusal(index, dead_letters.POISON_ITEM, str(error)))
        for one in jobs.values():
            if one is not None:
                job, status, turns = one
                if not job.again and not (job.status is status and job.turns is turns):
                    job.changed_at = offset
                if job.takes_turns:
                    self._take_turns.add(job.job_id)
        return following

    def end(self) -> Settlement:
        """What is to be written, once all records of the step are settled."""
        for job in self._jobs.values():
            if job.changed_at >= 0:
                self._close(job)
        return self._result

    def _job(self, job_id: int) -> _Job | None:
        """The job as the record at hand finds it; None if all of the record's effects on it were acknowledged."""
        job = self._jobs.get(job_id)
        if job is None:
            before = self._tables.status(job_id) or JobStatus()
            if self._offset < before.offset - before.span:
                return None
            again = self._offset <= before.offset
            turns = before.overlap_before if again else before.overlap
            job = self._jobs[job_id] = _Job(job_id, self._offset, before, before, turns)
        job.again = self._offset <= job.before.offset
        job.arrivals_above = -1 if job.turns is None else job.turns.admitted
        job.followed = set()
        return job

    def _close(self, job: _Job) -> None:
        """The job's status after the step, and the rows that no repetition of it needs."""
        before, turns = job.before, job.turns
        if turns is not None and before.overlap_before is not None:
            # The record at the status' offset may come again as long as this status is not written.
            needed = before.overlap_before.first_kept
            for place in range(turns.swept, needed):
                self._result.waiting[overlap.key_of(job.job_id, place)] = None
            turns = msgspec.structs.replace(turns, swept=needed)
        self._result.running += job.status.running - before.running
        self._result.statuses[job.job_id] = msgspec.structs.replace(
            job.status,
            offset=job.changed_at,
            span=job.changed_at - job.since,
            overlap=turns,
            overlap_before=before.overlap,
        )

    def _apply(self, job: _Job, index: int, item: Item) -> None:
        kind = item.kind
        if kind in _ENDS:
            self._end(job, index, item)
        elif kind is _STARTED:
            report = report_of(item.body)
            self._merge(job, kind, self._reported(item, report), report.tenant, report.name)
        elif kind is Kind.SKIPPED:
            skip = skip_of(item.body)
            self._merge(job, kind, self._skipped(item, skip), skip.tenant, skip.name, skip.count)
        elif kind is Kind.CANCEL:
            whose = deleted_of(item.body)
            if not job.status.deleted:
                self._count(Kind.CANCEL)
                job.status = msgspec.structs.replace(job.status, tenant=whose.tenant, name=whose.name, deleted=True)
        elif kind in _ARRIVALS:
            self._arrive(job, item)
        else:
            raise PoisonItem(f"{kind.name} is no outcome")

    # Ends.

    def _end(self, job: _Job, index: int, item: Item) -> None:
        try:
            report = report_of(item.body)
        except PoisonItem:
            self._next_turn(job, item, over=True)
            raise
        first = self._merge(job, item.kind, self._reported(item, report), report.tenant, report.name)
        over = True
        if item.kind in UNSUCCESSFUL:
            follows = next_try(item, report, self._batch.published_at)
            over = isinstance(follows, GivenUp)
            if first:
                self._follow(index, item, report, follows)
        if job.turns is not None:
            self._next_turn(job, item, over)

    def _follow(self, index: int, item: Item, report: Report, follows: Item | GivenUp) -> None:
        if isinstance(follows, Item):
            self._following.retries.append(follows)
        else:
            subject = Subject.of(item, report.tenant, report.name)
            self._following.refused.append(Refusal(index, follows.reason, follows.error, subject))

    # Whose turn it is.

    def _arrive(self, job: _Job, item: Item) -> None:
        turns = job.turns or Overlap()
        source = self._batch.source
        if source is not None:
            if source.offset <= job.arrivals_above:
                return
            turns = msgspec.structs.replace(turns, admitted=source.offset)
        job.turns, turn = overlap.arrive(turns, item, self._tables.queue_limit)
        if turn is Turn.START:
            self._start(job, self._batch.token, self._batch.published_at, item)
        elif turn is Turn.WAIT:
            row = Waiting.of(item, self._batch).encode()
            self._result.waiting[overlap.key_of(job.job_id, turns.tail)] = row
        else:
            why = skips.OVERLAP if item.kind is Kind.RUN_ALONE else skips.QUEUE_FULL
            self._following.closed.append(skipped(item, why))

    def _next_turn(self, job: _Job, item: Item, over: bool) -> None:
        if job.turns is None:
            return
        job.turns, free = overlap.end(job.turns, item, over)
        if free and job.turns.waiting:
            key = overlap.key_of(job.job_id, job.turns.head)
            first = Waiting.decode(self._result.waiting.get(key) or self._tables.waiting(key) or b"")
            job.turns = overlap.start(job.turns, first.item(job.job_id))
            self._start(job, first.token, first.published_at, first.item(job.job_id))

    def _start(self, job: _Job, token: int, published_at: int, item: Item) -> None:
        """A run's turn has come; a deleted job's ends without a try, and that outcome brings on the next."""
        if job.status.deleted:
            self._following.closed.append(cancelled(item, self._batch.published_at))
        else:
            self._following.starts.append((token, published_at, msgspec.structs.replace(item, kind=Kind.RUN)))

    # The status.

    def _merge(self, job: _Job, kind: Kind, new: RunStatus, tenant: str, name: str, weight: int = 1) -> bool:
        """Take a run's news into the status. True if it is the first that was heard of this end."""
        status = job.status
        old = _same_run(status.runs, new)
        if job.again:
            return self._was_first(job, new, old)
        if old is not None and not _supersedes(new, old):
            if kind is _STARTED and new.attempt == old.attempt and old.started_at is None:
                filled = msgspec.structs.replace(old, started_at=new.started_at)
                runs = tuple(filled if run is old else run for run in status.runs)
                job.status = msgspec.structs.replace(status, runs=runs)
            return False
        counts = status.counts
        if kind is not _STARTED:
            self._count(kind, weight)
            place = COUNTED.index(kind)
            counts = (*counts[:place], counts[place] + weight, *counts[place + 1 :])
        others = status.runs if old is None else tuple(run for run in status.runs if run is not old)
        runs = _bounded((*others, new))
        job.status = msgspec.structs.replace(status, tenant=tenant, name=name, counts=counts, runs=runs)
        return True

    def _was_first(self, job: _Job, new: RunStatus, old: RunStatus | None) -> bool:
        """Whether this news was the first of its end when the record was taken; the status is from after that."""
        if new.kind not in UNSUCCESSFUL:
            return False
        end = (new.scheduled, new.request_id, new.attempt)
        if end in job.followed:
            return False
        # A later record of the step that tells of a later attempt proves that the retry had come through.
        first = old is None or (
            old.offset == self._offset
            and (old.attempt > new.attempt or (old.attempt, old.kind) == (new.attempt, new.kind))
        )
        if first:
            job.followed.add(end)
        return first

    def _count(self, kind: Kind, weight: int = 1) -> None:
        self._result.ended[kind] = self._result.ended.get(kind, 0) + weight

    def _skipped(self, item: Item, skip: Skip) -> RunStatus:
        note = _short(skip.reason)
        return RunStatus(item.scheduled_us, item.request_id, 0, item.kind, note=note, offset=self._offset)

    def _reported(self, item: Item, report: Report) -> RunStatus:
        return RunStatus(
            item.scheduled_us,
            item.request_id,
            item.attempt,
            item.kind,
            report.started_at,
            report.finished_at,
            report.worker,
            _short(report.error),
            self._offset,
        )


def _same_run(runs: tuple[RunStatus, ...], new: RunStatus) -> RunStatus | None:
    for run in runs:
        if run.scheduled == new.scheduled and run.request_id == new.request_id:
            return run
    return None


def _supersedes(new: RunStatus, old: RunStatus) -> bool:
    """A later attempt, or the end of the attempt that is running."""
    if new.attempt != old.attempt:
        return new.attempt > old.attempt
    return old.kind == _STARTED and new.kind != _STARTED


def _bounded(runs: tuple[RunStatus, ...]) -> tuple[RunStatus, ...]:
    """Without the run that nothing was heard of for the longest, ended ones before running ones."""
    if len(runs) <= KEPT_RUNS:
        return runs
    ended = (index for index, run in enumerate(runs[:-1]) if run.kind != _STARTED)
    out = next(ended, 0)
    return runs[:out] + runs[out + 1 :]


def _short(text: str | None) -> str | None:
    return text if text is None else text[:NOTE_CHARACTERS]
