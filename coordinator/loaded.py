"""The jobs that the leader holds: one slot each, its facts in columns.

A slot is a dense index, reused when a job leaves. The wheel knows only slots
and instants; all else about a job stands here, in the row of its slot.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from coordinator.arrivals import Job
from coordinator.rules import Rule
from cronstream.records import Int64s
from cronstream.topics import partition_of, partitions_of


class LoadedJobs:
    """Columns by slot. One thread owns them: the dispatcher's."""

    def __init__(self, partitions: int, capacity: int = 1024) -> None:
        self._partitions = partitions
        self._slots: dict[int, int] = {}
        self._free: list[int] = []
        self.job_id: Int64s = np.zeros(capacity, np.int64)
        self.next_us: Int64s = np.zeros(capacity, np.int64)
        """The scheduled time that is armed."""
        self.version: Int64s = np.zeros(capacity, np.int64)
        """The version of the job's row in ``schedules`` once all that was handed to the writer is written."""
        self.grace_us: Int64s = np.zeros(capacity, np.int64)
        self.period_us: Int64s = np.zeros(capacity, np.int64)
        """Of a plain interval; 0: the next time is asked of the rule."""
        self.schedule_id: Int64s = np.zeros(capacity, np.int64)
        """Equal for slots whose rules share one schedule object."""
        self.partition: npt.NDArray[np.int32] = np.zeros(capacity, np.int32)
        self.run_kind: npt.NDArray[np.uint8] = np.zeros(capacity, np.uint8)
        """What the job's runs are on triggers (``Kind``)."""
        self.rule: list[Rule] = []
        self.work: list[bytes] = []
        """The packed ``Work`` that each of the job's triggers carries."""

    def __len__(self) -> int:
        return len(self._slots)

    def slot_of(self, job_id: int) -> int | None:
        """The job's slot, or None if it is not held."""
        return self._slots.get(job_id)

    def hold(self, job_id: int, *, next_us: int, version: int, rule: Rule, work: bytes) -> int:
        """Take a job in, or replace what is held of it; return its slot."""
        slot = self._slots.get(job_id)
        if slot is None:
            slot = self._take_slot(job_id, rule, work)
        self.next_us[slot] = next_us
        self.version[slot] = version
        self.grace_us[slot] = rule.grace_us
        self.period_us[slot] = rule.period_us
        self.schedule_id[slot] = id(rule.schedule)
        self.run_kind[slot] = rule.run_kind
        self.rule[slot] = rule
        self.work[slot] = work
        return slot

    def hold_many(self, jobs: Sequence[Job], next_us: Sequence[int]) -> npt.NDArray[np.int32]:
        """Take in jobs that are not held yet, each at its time; returns their slots."""
        slots = np.array([self._place(job.job_id, job.rule, job.work) for job in jobs], np.int32)
        job_ids = np.array([job.job_id for job in jobs], np.int64)
        self.job_id[slots] = job_ids
        self.partition[slots] = partitions_of(job_ids, self._partitions)
        self.next_us[slots] = next_us
        self.version[slots] = [job.version for job in jobs]
        self.grace_us[slots] = [job.rule.grace_us for job in jobs]
        self.period_us[slots] = [job.rule.period_us for job in jobs]
        self.schedule_id[slots] = [id(job.rule.schedule) for job in jobs]
        self.run_kind[slots] = [job.rule.run_kind for job in jobs]
        return slots

    def release(self, slot: int) -> None:
        """Let a job go; its slot may be reused."""
        del self._slots[int(self.job_id[slot])]
        self.rule[slot] = _NO_RULE
        self.work[slot] = b""
        self._free.append(slot)

    def release_all(self, slots: list[int], job_ids: list[int]) -> None:
        """Let many jobs go."""
        for slot, job_id in zip(slots, job_ids, strict=True):
            del self._slots[job_id]
            self.rule[slot] = _NO_RULE
            self.work[slot] = b""
        self._free.extend(slots)

    def _take_slot(self, job_id: int, rule: Rule, work: bytes) -> int:
        slot = self._place(job_id, rule, work)
        self.job_id[slot] = job_id
        self.partition[slot] = partition_of(job_id, self._partitions)
        return slot

    def _place(self, job_id: int, rule: Rule, work: bytes) -> int:
        """A free slot for the job, with what is not in a column."""
        if self._free:
            slot = self._free.pop()
            self.rule[slot] = rule
            self.work[slot] = work
        else:
            slot = len(self.rule)
            self.rule.append(rule)
            self.work.append(work)
            if slot == len(self.job_id):
                self._grow()
        self._slots[job_id] = slot
        return slot

    def _grow(self) -> None:
        size = len(self.job_id) * 5 // 4 + 1024
        for name in ("job_id", "next_us", "version", "grace_us", "period_us", "schedule_id", "partition", "run_kind"):
            old = getattr(self, name)
            new = np.zeros(size, old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)


_NO_RULE = Rule(None)
