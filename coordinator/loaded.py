"""The jobs that the leader holds: one slot each, its facts in columns.

A slot is a dense index, reused when a job leaves. The wheel knows only slots
and instants; all else about a job stands here, in the row of its slot.

Millions are held, so a job has no object of its own but its packed work: a plain
interval is its period and its armed time, and every other rule is shared.
"""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np
import numpy.typing as npt

from coordinator.arrivals import JobColumns
from coordinator.rules import NO_RULE, Rule
from coordinator.slots import SlotIndex, Slots
from cronstream.records import Int64s
from cronstream.topics import partitions_of

FREE: Final = -1
"""In the column of job ids: nobody has the slot."""


class LoadedJobs:
    """Columns by slot. One thread owns them: the dispatcher's."""

    def __init__(self, partitions: int, capacity: int = 1024) -> None:
        self._partitions = partitions
        self._slots = SlotIndex()
        self._free = array("i")
        self.job_id: Int64s = np.zeros(capacity, np.int64)
        """FREE: the slot is."""
        self.next_us: Int64s = np.zeros(capacity, np.int64)
        """The scheduled time that is armed."""
        self.version: Int64s = np.zeros(capacity, np.int64)
        """The version of the job's row in ``schedules`` once all that was handed to the writer is written."""
        self.grace_us: Int64s = np.zeros(capacity, np.int64)
        self.period_us: Int64s = np.zeros(capacity, np.int64)
        """Of a plain interval; 0: the next time is asked of the rule."""
        self.schedule_id: Int64s = np.zeros(capacity, np.int64)
        """Equal for slots whose rules share one schedule object; of those with a period it says nothing."""
        self.partition: npt.NDArray[np.int32] = np.zeros(capacity, np.int32)
        self.run_kind: npt.NDArray[np.uint8] = np.zeros(capacity, np.uint8)
        """What the job's runs are on triggers (``Kind``)."""
        self._rules: list[Rule] = []
        self.work: list[bytes] = []
        """The packed ``Work`` that each of the job's triggers carries."""

    def __len__(self) -> int:
        return len(self._slots)

    def slots_of(self, job_ids: Int64s) -> Slots:
        """The slot of each job, ABSENT if it is not held."""
        return self._slots.find(self.job_id, job_ids)

    def rule(self, slot: int) -> Rule:
        """When the job fires, from the armed time on. Of a plain interval it is made when asked for."""
        rule, period_us = self._rules[slot], int(self.period_us[slot])
        return rule.every(period_us, int(self.next_us[slot])) if period_us else rule

    def hold(self, jobs: JobColumns) -> Slots:
        """Take in jobs that are not held yet, each with a next time; returns their slots."""
        slots = self._take_slots(jobs)
        self.job_id[slots] = jobs.job_id
        self.partition[slots] = partitions_of(jobs.job_id, self._partitions)
        self.next_us[slots] = jobs.next_us
        self.version[slots] = jobs.version
        self.period_us[slots] = jobs.period_us
        self.grace_us[slots] = [rule.grace_us for rule in jobs.rules]
        self.schedule_id[slots] = [id(rule.schedule) for rule in jobs.rules]
        self.run_kind[slots] = [rule.run_kind for rule in jobs.rules]
        self._slots.add(self.job_id, slots)
        return slots

    def release(self, slots: Slots) -> None:
        """Let jobs go; their slots may be reused."""
        self._slots.remove(self.job_id, slots)
        self.job_id[slots] = FREE
        freed = slots.tolist()
        for slot in freed:
            self._rules[slot] = NO_RULE
            self.work[slot] = b""
        self._free.extend(freed)

    def _take_slots(self, jobs: JobColumns) -> Slots:
        """A free slot for each, with what is not in a numeric column."""
        reused = min(len(jobs), len(self._free))
        taken = self._free[len(self._free) - reused :]
        del self._free[len(self._free) - reused :]
        for slot, rule, work in zip(taken, jobs.rules, jobs.works, strict=False):
            self._rules[slot] = rule
            self.work[slot] = work
        first = len(self._rules)
        self._rules.extend(jobs.rules[reused:])
        self.work.extend(jobs.works[reused:])
        if len(self._rules) > len(self.job_id):
            self._grow(len(self._rules))
        return np.concatenate([np.array(taken, np.int32), np.arange(first, len(self._rules), dtype=np.int32)])

    def _grow(self, least: int) -> None:
        size = max(least, len(self.job_id) * 5 // 4 + 1024)
        for name in ("job_id", "next_us", "version", "grace_us", "period_us", "schedule_id", "partition", "run_kind"):
            old = getattr(self, name)
            new = np.zeros(size, old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)
