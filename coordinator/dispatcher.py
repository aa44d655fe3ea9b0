"""The tick: what is due is published, its next time armed, its row advanced.

One thread owns the wheel and all that is held of jobs. Each turn it takes one
arrival from the mailbox, then everything that is due:

    due slots --publish, one transaction--> acknowledged --> next times
        --> wheel (up to the horizon) and writer (always)

What falls due between two transactions is gathered: the broker still completes the
last one for a few milliseconds after it has answered, and one that begins meanwhile is
sent away and asked again after twenty. Idle moments go into the lookahead (ahead.py).

Postgres is not waited for between due and published. Only an edited job waits:
it is armed when its plan is written, since until then nobody who takes over
could tell the new schedule's triggers on the log from the old one's.

On-time work goes before what was missed (backlog.py), both before requests (request_queue.py) and deletions
(deletions.py).

A job whose times cannot be computed is set aside alone: a skip says why, its
row gets no next time, and the next edit plans it anew.

Nothing here outlives the term: whatever ends it raises TermOver out of ``run``,
and all that was held is dropped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from coordinator.ahead import Ahead
from coordinator.arrivals import Arrival, Audited, Edit, Forget, Horizon, JobColumns, Loaded, Mailbox, Requested
from coordinator.backlog import Backlog
from coordinator.batching import item_batches, transactions
from coordinator.database_clock import DatabaseClock
from coordinator.deletions import Deletions
from coordinator.edits import PassedTimes, parted, planned_edit
from coordinator.figures import Figures
from coordinator.items import owed_items, set_aside
from coordinator.loaded import LoadedJobs
from coordinator.next_times import next_times
from coordinator.publisher import Publisher
from coordinator.request_queue import RequestQueue
from coordinator.slots import ABSENT, Slots
from coordinator.tail import Tail
from coordinator.trust import Term
from coordinator.unwritten import Row, Unwritten
from coordinator.wheel import Wheel
from coordinator.writer import NONE, Advances, Plans, Steps, Writer
from cronstream import pulse
from cronstream.fault_points import reach
from cronstream.records import Batch, Int64s, Item
from cronstream.settings import CoordinatorSettings

log = logging.getLogger(__name__)

# Between two looks at the term, the stop event and the writer when nothing is due.
_LONGEST_WAIT = 0.1
# On-time work waits no longer than it takes to publish what so many missed jobs owe.
_CAUGHT_UP_AT_ONCE = 200
# Lookahead holds copies of the bodies of so many items at most.
_MOST_AHEAD = 300_000
# While a planned job waits for its plan to be written.
_WAIT_FOR_WRITE = 0.005


class Dispatcher:
    """Decides and does what is due; see the module's text."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        term: Term,
        token: int,
        clock: DatabaseClock,
        publisher: Publisher,
        writer: Writer,
        mailbox: Mailbox,
        tail: Tail | None = None,
    ) -> None:
        """``tail``: what was published and perhaps not noted when the term began."""
        tail = tail or Tail()
        self._settings = settings
        self._term = term
        self.token = token
        """Newer than any token before it; on every batch."""
        self._clock = clock
        self._publisher = publisher
        self._writer = writer
        self._mailbox = mailbox
        self._jobs = LoadedJobs(settings.partitions)
        self._wheel = Wheel(clock.now_us())
        self._ahead = Ahead(
            self._jobs, self._wheel, token, ahead_us=int(settings.lookahead_seconds * 1e6), most=_MOST_AHEAD
        )
        self._began_ns: int | None = None
        """When the newest transaction began."""
        self._backlog = Backlog(self._jobs, settings.catch_up_per_second, clock.now_us())
        self._requests = RequestQueue(settings, clock.now_us())
        self._deletions = Deletions(settings.deletions_per_second, clock.now_us())
        self._horizon_us = 0
        self._unwritten = Unwritten()
        self._tail = dict(tail.newest)
        self._passed = PassedTimes(settings.dedup_window_seconds)
        # Until then what was settled of open edits is known from the log alone: it stays in the tail.
        self._edits_planned = False
        self.figures = Figures(clock)

    @property
    def backlog(self) -> int:
        """How many jobs wait with missed times."""
        return len(self._backlog)

    @property
    def loaded(self) -> int:
        """How many jobs the wheel holds."""
        return len(self._jobs)

    def run(self, stop: threading.Event) -> None:
        """Until ``stop`` is set. Raises TermOver."""
        while not stop.is_set():
            pulse.beat()
            if not self.turn():
                self._mailbox.wait(self._wait_seconds())

    def turn(self) -> bool:
        """One arrival, then all that is due; returns whether to turn again at once. Raises TermOver."""
        self._term.check()
        self._check_writer()
        self._arm_written()
        if (arrival := self._mailbox.take()) is not None:
            self._take(arrival)
        if self._gathering_seconds() > 0:
            return self._ahead.step(self._clock.now_us()) or bool(len(self._mailbox))
        now_us = self._clock.now_us()
        due = self._wheel.pop_due(now_us)
        if due.size:
            self._fire(due, now_us)
        caught_up = self._catch_up(max(now_us, self._clock.now_us())) if len(self._backlog) else 0
        requested = self._publish_requested(max(now_us, self._clock.now_us())) if len(self._requests) else 0
        told = self._tell_deletions(max(now_us, self._clock.now_us())) if len(self._deletions) else 0
        return bool(due.size or caught_up or requested or told or len(self._mailbox)) or self._ahead.step(now_us)

    def _gathering_seconds(self) -> float:
        """Until the next transaction may begin; not positive: now."""
        if self._began_ns is None:
            return 0.0
        return self._settings.gather_seconds - (self._clock.boot_ns() - self._began_ns) / 1e9

    def _wait_seconds(self) -> float:
        longest = _WAIT_FOR_WRITE if self._unwritten.has_planned else _LONGEST_WAIT
        for waiting in (self._backlog, self._requests, self._deletions):
            if (turn_seconds := waiting.wait_seconds()) is not None:
                longest = min(longest, turn_seconds)
        next_us = self._wheel.next_at()
        due = longest if next_us is None else max(next_us - self._clock.now_us(), 0) / 1e6
        return min(max(due, self._gathering_seconds()), longest)

    def _check_writer(self) -> None:
        if self._writer.waiting_seconds() > self._settings.dedup_window_seconds / 2:
            self._term.end("Postgres has not taken the advances for half the dedup window")
            self._term.check()

    # ---- what is due ---------------------------------------------------------------------------

    def _fire(self, due: Slots, now_us: int) -> None:
        """Publish what is due, then move each job on; what was missed waits in the backlog."""
        jobs = self._jobs
        on_time = now_us - jobs.next_us[due] <= jobs.grace_us[due]
        for slot in due[~on_time].tolist():
            self._backlog.add(slot)
        published = []
        ready, slots = self._ahead.take(due[on_time], now_us)
        for batches in transactions(jobs, ready, slots, self.token, self._settings.transaction_items):
            # A new anchor may set the clock back a little, yet what was due is due.
            published_at = max(now_us, self._clock.now_us())
            offsets = self._publish(packed.published(published_at) for packed in batches)
            chunk = np.concatenate([packed.slots for packed in batches])
            self.figures.acknowledged(jobs.next_us[chunk])
            published.append((chunk, offsets))
        for chunk, offsets in published:
            next_us, failed = next_times(jobs, chunk)
            if failed:
                offsets = {**offsets, **self._set_aside(failed, now_us)}
            self._move_on(chunk, next_us, offsets)

    def _catch_up(self, now_us: int) -> int:
        """Publish what jobs of the backlog owe by now, as their policies say; returns how many jobs."""
        slots = self._backlog.take(now_us, _CAUGHT_UP_AT_ONCE)
        if not slots:
            return 0
        jobs = self._jobs
        next_us = np.full(len(slots), NONE, np.int64)
        items: list[Item] = []
        for index, slot in enumerate(slots):
            first_us = int(jobs.next_us[slot])
            try:
                rule = jobs.rule(slot)
                owed = rule.owed(first_us, now_us)
            except Exception as error:
                items += self._set_aside_items(slot, error, first_us, now_us)
                continue
            items += owed_items(int(jobs.job_id[slot]), jobs.work[slot], owed.runs, owed.skips, rule.run_kind)
            if owed.next_us is not None:
                next_us[index] = owed.next_us
        offsets = self._publish(self._item_batches(items, now_us))
        self.figures.acknowledged(items=items)
        self._backlog.spend(len(items))
        self._move_on(np.array(slots, np.int32), next_us, offsets)
        return len(slots)

    def _publish_requested(self, now_us: int) -> int:
        """Publish what requests ask for, as far as their rates allow; returns how many steps were taken."""
        steps = self._requests.take(now_us)
        if steps:
            items = [item for step in steps for item in step.items]
            offsets = self._publish(self._item_batches(items, now_us)) if items else {}
            reach("request.published")
            self.figures.requested += len(items)
            self._writer.put(Steps(steps, offsets))
        return len(steps)

    def _tell_deletions(self, now_us: int) -> int:
        """Publish that jobs are deleted, as far as the rate allows, and store it; returns how many."""
        told = self._deletions.take(now_us)
        if told:
            offsets = self._publish(self._item_batches([one.cancel for one in told], now_us))
            reach("deletions.published")
            number = self._writer.put(Plans([one.row for one in told], offsets))
            for one in told:
                self._unwritten.planned(one.row.job_id, Row(number, NONE, one.row.version), one.row.anchor_us, None)
        return len(told)

    def _set_aside(self, failed: Mapping[int, Exception], now_us: int) -> dict[int, int]:
        """Publish why jobs have no next time after the one just published."""
        items: list[Item] = []
        for slot, error in failed.items():
            items += self._set_aside_items(slot, error, int(self._jobs.next_us[slot]) + 1, now_us)
        offsets = self._publish(self._item_batches(items, now_us))
        self.figures.acknowledged(items=items)
        return offsets

    def _set_aside_items(self, slot: int, error: Exception, first_us: int, now_us: int) -> list[Item]:
        job_id = int(self._jobs.job_id[slot])
        log.error("A job's times cannot be computed; it is set aside: %r", error, extra={"job_id": job_id})
        return owed_items(job_id, self._jobs.work[slot], (), (set_aside(error, first_us, now_us),))

    def _move_on(self, slots: Slots, next_us: Int64s, offsets: dict[int, int]) -> None:
        jobs = self._jobs
        job_ids, expected = jobs.job_id[slots], jobs.version[slots]
        version = expected + 1
        jobs.version[slots] = version
        jobs.next_us[slots] = next_us
        number = self._writer.put(Advances(job_ids, expected, version, next_us, offsets))
        reach("dispatch.handed_over")
        stays = (next_us != NONE) & (next_us <= self._horizon_us)
        self._wheel.arm_many(slots[stays], next_us[stays])
        leaves = ~stays
        if leaves.any():
            gone = job_ids[leaves].tolist()
            self._unwritten.all_left(number, gone, next_us[leaves].tolist(), version[leaves].tolist())
            jobs.release(slots[leaves])

    # ---- what arrives --------------------------------------------------------------------------

    def _take(self, arrival: Arrival) -> None:
        if isinstance(arrival, Horizon):
            self._horizon_us = arrival.until_us
            arrival.taken.set()
        elif isinstance(arrival, Forget):
            self._forget(arrival.job_ids)
            arrival.taken.set()
        elif isinstance(arrival, Requested):
            self._requests.add(arrival.steps)
        elif isinstance(arrival, Audited):
            self._edits_planned = True
        else:
            self._arm_written()  # before entries are dropped that it goes by
            self._unwritten.retire(arrival.as_of)
            if isinstance(arrival, Loaded):
                self._load(arrival.jobs)
            else:
                self._edit(arrival.edits)

    def _load(self, jobs: JobColumns) -> None:
        known = self._unwritten.of(jobs.job_id) | self._deletions.of(jobs.job_id)
        new = (self._jobs.slots_of(jobs.job_id) == ABSENT) & ~known
        sound = new.copy()
        sound[list(jobs.errors)] = False
        stays = sound & (jobs.next_us != NONE) & (jobs.next_us <= self._horizon_us)
        self._hold(jobs if stays.all() else jobs.only(np.flatnonzero(stays)))
        # Of the others the row named a time within the horizon and the schedule knows better: write that.
        self._settle_rows(jobs.only(np.flatnonzero(sound & ~stays)), {})
        broken = [index for index in jobs.errors if new[index]]
        if broken:
            self._set_rows_aside(jobs, broken)

    def _hold(self, jobs: JobColumns) -> None:
        """Take jobs in that are not held, and arm them."""
        if len(jobs):
            self._wheel.arm_many(self._jobs.hold(jobs), jobs.next_us)

    def _settle_rows(self, jobs: JobColumns, offsets: dict[int, int]) -> None:
        """Write the jobs' next times and do not hold them."""
        if len(jobs):
            version = jobs.version + 1
            number = self._writer.put(Advances(jobs.job_id, jobs.version, version, jobs.next_us, offsets))
            self._unwritten.all_left(number, jobs.job_id.tolist(), jobs.next_us.tolist(), version.tolist())

    def _set_rows_aside(self, jobs: JobColumns, broken: list[int]) -> None:
        now_us = self._clock.now_us()
        items: list[Item] = []
        for index in broken:
            job_id, error = int(jobs.job_id[index]), jobs.errors[index]
            log.error("A stored schedule cannot be read; its job is set aside: %s", error, extra={"job_id": job_id})
            skip = set_aside(error, int(jobs.next_us[index]), now_us)
            items += owed_items(job_id, jobs.works[index], (), (skip,))
        offsets = self._publish(self._item_batches(items, now_us))
        self.figures.acknowledged(items=items)
        jobs.next_us[broken] = NONE
        self._settle_rows(jobs.only(np.array(broken)), offsets)

    def _forget(self, job_ids: Sequence[int]) -> None:
        self._deletions.forget(job_ids)
        for job_id in job_ids:
            self._unwritten.forget(job_id)
        slots = self._jobs.slots_of(np.array(job_ids, np.int64))
        held = np.unique(slots[slots != ABSENT])
        for slot in held.tolist():
            self._wheel.cancel(slot)
            self._ahead.forget(slot)
        self._jobs.release(held)

    def _edit(self, edits: Sequence[Edit]) -> None:
        now_us = self._clock.now_us()
        planned = [
            planned_edit(edit, *position, now_us, self._tail.pop(edit.job_id, NONE), self._passed.of(edit.job_id))
            for edit, position in zip(edits, self._positions(edits), strict=True)
        ]
        at_once, deletions = parted(planned)
        items = [item for one in at_once for item in one.items()]
        offsets = self._publish(self._item_batches(items, now_us)) if items else {}
        self.figures.acknowledged(items=items)
        reach("plan.published")
        number = self._writer.put(Plans([one.row() for one in at_once], offsets)) if at_once else 0
        self._forget([one.edit.job_id for one in planned])
        self._deletions.add(deletions)
        for one in planned:
            if one.edit.definition is None:
                self._requests.delete(one.edit.job_id)
        for one in at_once:
            job_id, plan = one.edit.job_id, one.plan
            row = Row(number, NONE if plan.next_us is None else plan.next_us, one.version + 1)
            self._unwritten.planned(job_id, row, plan.anchor_us, one.job())
            self._passed.keep(job_id, plan.passed, now_us)
        self.figures.planned([one.edit.changes[-1].committed_us for one in planned])

    def _positions(self, edits: Sequence[Edit]) -> Iterator[tuple[int | None, int, int | None]]:
        """Each job's next time, version and anchor: as known here, else as its row says."""
        jobs = self._jobs
        slots = jobs.slots_of(np.array([edit.job_id for edit in edits], np.int64))
        held = zip(slots != ABSENT, jobs.next_us[slots].tolist(), jobs.version[slots].tolist(), strict=True)
        for edit, (is_held, next_us, version) in zip(edits, held, strict=True):
            anchor_us = self._unwritten.anchor(edit.job_id, edit.anchor_us)
            if is_held:
                yield next_us, version, anchor_us
            elif (row := self._unwritten.row(edit.job_id)) is not None:
                yield None if row.next_us == NONE else row.next_us, row.version, anchor_us
            else:
                yield edit.next_us, edit.version, anchor_us

    def _arm_written(self) -> None:
        """Hold the planned jobs whose plan has been written since."""
        planned = self._unwritten.take_written(self._writer.flushed)
        if planned:
            near = [job for job in planned if job.next_us is not None and job.next_us <= self._horizon_us]
            for job in near:
                self._unwritten.forget(job.job_id)
            self._hold(JobColumns.of(near))

    # ---- publishing ----------------------------------------------------------------

    def _publish(self, batches: Iterable[tuple[int, Batch]]) -> dict[int, int]:
        """Publish; returns the offsets that writes from here on cover."""
        self._began_ns = self._clock.boot_ns()
        offsets = self._publisher.publish(list(batches))
        return offsets if self._edits_planned else {}

    def _item_batches(self, items: list[Item], now_us: int) -> Iterator[tuple[int, Batch]]:
        return item_batches(items, partitions=self._settings.partitions, token=self.token, published_at=now_us)
