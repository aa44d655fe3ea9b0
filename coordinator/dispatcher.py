"""The tick: what is due is published, its next time armed, its row advanced.

One thread owns the wheel and all that is held of jobs. Each turn it takes one
arrival from the mailbox, then everything that is due:

    due slots --publish, one transaction--> acknowledged --> next times
        --> wheel (up to the horizon) and writer (always)

Postgres is not waited for. Nothing here outlives the term: whatever ends it
raises TermOver out of ``run``, and all that was held is dropped.

What a job's row will say is known here before it is written: ``LoadedJobs`` has
it for jobs in the wheel, ``_departed`` for those that left the wheel while
their last write was still queued. Rows as read count only for the others.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator

import numpy as np

from coordinator.arrivals import Arrival, Edit, Forget, Horizon, Job, Loaded, Mailbox
from coordinator.batching import Slots, due_batches, item_batches
from coordinator.database_clock import DatabaseClock
from coordinator.lateness import Lateness
from coordinator.loaded import LoadedJobs
from coordinator.planning import Plan, replan
from coordinator.publisher import Publisher
from coordinator.rules import work_of_row
from coordinator.trust import Term
from coordinator.wheel import Wheel
from coordinator.writer import NONE, Advances, PlanRow, Plans, Writer
from cronstream.bodies import Skip, pack, work_of
from cronstream.records import Batch, Int64s, Item, Kind
from cronstream.schedule import Skip as Skipped
from cronstream.settings import CoordinatorSettings

log = logging.getLogger(__name__)

# Between two looks at the term, the stop event and the writer when nothing is due.
_LONGEST_WAIT = 0.1


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
    ) -> None:
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
        self._horizon_us = 0
        self._departed: dict[int, tuple[int, int | None, int]] = {}
        self.lateness = Lateness()
        self.published = 0
        self.skipped = 0
        self._first_publish_ns: int | None = None
        self.capture_lag_ms: float | None = None
        """From the commit of the newest edit to its plan."""

    @property
    def loaded(self) -> int:
        """How many jobs the wheel holds."""
        return len(self._jobs)

    def first_publish_seconds(self, since_ns: int) -> float | None:
        """From that boot time to the first publish of the term; None before it."""
        first = self._first_publish_ns
        return None if first is None else round((first - since_ns) / 1e9, 3)

    def run(self, stop: threading.Event) -> None:
        """Until ``stop`` is set. Raises TermOver."""
        while not stop.is_set():
            self._term.check()
            self._check_writer()
            if (arrival := self._mailbox.take()) is not None:
                self._take(arrival)
            now_us = self._clock.now_us()
            due = self._wheel.pop_due(now_us)
            for start in range(0, len(due), self._settings.transaction_items):
                self._fire(due[start : start + self._settings.transaction_items], self._clock.now_us())
            if not due.size and not len(self._mailbox):
                self._mailbox.wait(self._wait_seconds(now_us))

    def _wait_seconds(self, now_us: int) -> float:
        next_us = self._wheel.next_at()
        return _LONGEST_WAIT if next_us is None else min(max(next_us - now_us, 0) / 1e6, _LONGEST_WAIT)

    def _check_writer(self) -> None:
        if self._writer.waiting_seconds() > self._settings.dedup_window_seconds / 2:
            self._term.end("Postgres has not taken the advances for half the dedup window")
            self._term.check()

    # ---- what is due ---------------------------------------------------------------------------

    def _fire(self, slots: Slots, now_us: int) -> None:
        """Publish what is due, move each job on to its next time."""
        jobs = self._jobs
        on_time = now_us - jobs.next_us[slots] <= jobs.grace_us[slots]
        misfired = slots[~on_time]
        slots = slots[on_time]
        batches = list(due_batches(jobs, slots, token=self.token, published_at=now_us))
        next_of_misfired = np.full(len(misfired), NONE, np.int64)
        items: list[Item] = []
        for index, slot in enumerate(misfired.tolist()):
            owed = jobs.rule[slot].owed(int(jobs.next_us[slot]), now_us)
            items.extend(self._items(int(jobs.job_id[slot]), jobs.work[slot], owed.runs, owed.skips))
            if owed.next_us is not None:
                next_of_misfired[index] = owed.next_us
        batches += self._item_batches(items, now_us)
        offsets = self._publisher.publish(batches)
        self._note(jobs.next_us[slots], items)
        self._move_on(
            np.concatenate([slots, misfired]),
            np.concatenate([self._next_times(slots), next_of_misfired]),
            offsets,
        )

    def _next_times(self, slots: Slots) -> Int64s:
        """The scheduled time after the armed one, computed once for each distinct pair of rule and instant."""
        known: dict[tuple[int, int], int] = {}
        rule, times = self._jobs.rule, self._jobs.next_us[slots].tolist()
        result = np.empty(len(slots), np.int64)
        for index, (slot, time_us) in enumerate(zip(slots.tolist(), times, strict=True)):
            key = (id(rule[slot].schedule), time_us)
            following = known.get(key)
            if following is None:
                found = rule[slot].next_after(time_us)
                following = known[key] = NONE if found is None else found
            result[index] = following
        return result

    def _move_on(self, slots: Slots, next_us: Int64s, offsets: dict[int, int]) -> None:
        jobs = self._jobs
        job_ids, expected = jobs.job_id[slots], jobs.version[slots]
        version = expected + 1
        jobs.version[slots] = version
        jobs.next_us[slots] = next_us
        number = self._writer.put(Advances(job_ids, expected, version, next_us, offsets))
        stays = (next_us != NONE) & (next_us <= self._horizon_us)
        self._wheel.arm_many(slots[stays], next_us[stays])
        for slot in slots[~stays].tolist():
            self._release(slot, number)

    def _release(self, slot: int, number: int) -> None:
        """Drop a job from the wheel; write ``number`` is the last that concerns it."""
        jobs = self._jobs
        next_us = int(jobs.next_us[slot])
        self._departed[int(jobs.job_id[slot])] = (
            number,
            None if next_us == NONE else next_us,
            int(jobs.version[slot]),
        )
        jobs.release(slot)

    # ---- what arrives --------------------------------------------------------------------------

    def _take(self, arrival: Arrival) -> None:
        if isinstance(arrival, Horizon):
            self._horizon_us = arrival.until_us
            arrival.taken.set()
        elif isinstance(arrival, Forget):
            for job_id in arrival.job_ids:
                self._forget(job_id)
            arrival.taken.set()
        else:
            self._retire_departed(arrival.as_of)
            if isinstance(arrival, Loaded):
                self._load(arrival.jobs)
            else:
                self._edit(arrival.edits)

    def _retire_departed(self, as_of: int) -> None:
        """Rows read after write ``as_of`` was done are right about jobs whose last write it covers."""
        for job_id in [job_id for job_id, (number, _, _) in self._departed.items() if number <= as_of]:
            del self._departed[job_id]

    def _load(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            if self._jobs.slot_of(job.job_id) is not None or job.job_id in self._departed:
                continue
            # The row may hold a lower bound: after a takeover, or from other time zone data.
            first = job.rule.next_after(job.next_us - 1)
            if first is not None and first <= self._horizon_us:
                self._hold(job, first, job.version)
            else:
                self._settle_row(job, first)

    def _hold(self, job: Job, next_us: int, version: int) -> None:
        slot = self._jobs.hold(job.job_id, next_us=next_us, version=version, rule=job.rule, work=job.work)
        self._wheel.arm(slot, next_us)

    def _settle_row(self, job: Job, next_us: int | None) -> None:
        """The row named a time within the horizon and the schedule knows better: write that."""
        version = job.version + 1
        number = self._writer.put(
            Advances(
                np.array([job.job_id]),
                np.array([job.version]),
                np.array([version]),
                np.array([NONE if next_us is None else next_us]),
                {},
            )
        )
        self._departed[job.job_id] = (number, next_us, version)

    def _forget(self, job_id: int) -> None:
        self._departed.pop(job_id, None)
        slot = self._jobs.slot_of(job_id)
        if slot is not None:
            self._wheel.cancel(slot)
            self._jobs.release(slot)

    def _edit(self, edits: Iterable[Edit]) -> None:
        now_us = self._clock.now_us()
        planned = [(edit, *self._position(edit)) for edit in edits]
        plans = [
            (
                edit,
                version,
                replan(edit.changes, edit.definition, next_us=next_us, anchor_us=edit.anchor_us, now_us=now_us),
            )
            for edit, next_us, version in planned
        ]
        works = [b"" if edit.definition is None else pack(work_of_row(edit.definition)) for edit, _, _ in plans]
        items: list[Item] = []
        for (edit, _, plan), work in zip(plans, works, strict=True):
            items.extend(self._edit_items(edit, plan, work))
        offsets = self._publisher.publish(list(self._item_batches(items, now_us))) if items else {}
        self._note(np.empty(0, np.int64), items)
        number = self._writer.put(Plans([_plan_row(edit, version, plan) for edit, version, plan in plans], offsets))
        for (edit, version, plan), work in zip(plans, works, strict=True):
            self._arm_anew(edit.job_id, version + 1, plan, work, number)
            self.capture_lag_ms = (self._clock.now_us() - edit.changes[-1].committed_us) / 1000

    def _position(self, edit: Edit) -> tuple[int | None, int]:
        """The job's next time and version: as known here, else as its row says."""
        slot = self._jobs.slot_of(edit.job_id)
        if slot is not None:
            return int(self._jobs.next_us[slot]), int(self._jobs.version[slot])
        if edit.job_id in self._departed:
            _, next_us, version = self._departed[edit.job_id]
            return next_us, version
        return edit.next_us, edit.version

    def _edit_items(self, edit: Edit, plan: Plan, work: bytes) -> list[Item]:
        columns = edit.definition or edit.changes[-1].previous or {}
        named = Skip(columns.get("tenant", ""), columns.get("name", ""), "", 0, 0, 0)
        items = _in_order(edit.job_id, work, plan.runs, plan.skips, named)
        if edit.definition is None:
            items.append(Item(Kind.CANCEL, edit.job_id, edit.changes[-1].committed_us))
        return items

    def _arm_anew(self, job_id: int, version: int, plan: Plan, work: bytes, number: int) -> None:
        if plan.rule is not None and plan.next_us is not None and plan.next_us <= self._horizon_us:
            self._departed.pop(job_id, None)
            self._hold(Job(job_id, plan.next_us, version, plan.rule, work), plan.next_us, version)
            return
        self._forget(job_id)
        self._departed[job_id] = (number, plan.next_us, 0 if plan.rule is None else version)

    # ---- items and figures ---------------------------------------------------------------------

    def _items(self, job_id: int, work: bytes, runs: Iterable[int], skips: Iterable[Skipped]) -> list[Item]:
        whose = work_of(work)
        return _in_order(job_id, work, runs, skips, Skip(whose.tenant, whose.name, "", 0, 0, 0))

    def _item_batches(self, items: list[Item], now_us: int) -> Iterator[tuple[int, Batch]]:
        return item_batches(items, partitions=self._settings.partitions, token=self.token, published_at=now_us)

    def _note(self, on_time: Int64s, items: list[Item]) -> None:
        """Count what the broker has acknowledged just now."""
        acknowledged_us = self._clock.now_us()
        late = [item.scheduled_us for item in items if item.kind == Kind.RUN]
        times = np.concatenate([on_time, np.array(late, np.int64)])
        self.published += len(times)
        self.skipped += sum(item.kind == Kind.SKIP for item in items)
        if times.size:
            if self._first_publish_ns is None:
                self._first_publish_ns = self._clock.boot_ns()
            self.lateness.record(acknowledged_us // 1_000_000, acknowledged_us - times)


def _in_order(job_id: int, work: bytes, runs: Iterable[int], skips: Iterable[Skipped], named: Skip) -> list[Item]:
    """A job's runs and skips as items, by scheduled time."""
    items = [Item(Kind.RUN, job_id, run_us, body=work) for run_us in runs]
    for skip in skips:
        body = Skip(named.tenant, named.name, skip.reason, skip.first_us, skip.last_us, skip.count)
        items.append(Item(Kind.SKIP, job_id, skip.last_us, body=pack(body)))
    return sorted(items, key=lambda item: item.scheduled_us)


def _plan_row(edit: Edit, version: int, plan: Plan) -> PlanRow:
    return PlanRow(
        edit.job_id,
        version,
        version + 1,
        plan.next_us,
        edit.revision,
        plan.anchor_us,
        edit.definition is None,
        tuple(change.change_id for change in edit.changes),
    )
