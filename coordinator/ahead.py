"""Lookahead: batches of what falls due together soon, packed before it is due.

Joining bodies and columns is nine tenths of what a trigger costs between due and
published. For a herd that is paid in the second before, in pieces short enough not to
hold up what is due meanwhile; at the instant the frames are closed and published.

    wheel ──filed(tick)──► alike: slots of one instant ──pack──► ready ──take──► published

Nothing here is a promise: a batch counts only if every slot in it is still armed for the
instant it was packed for. An edited job's slot is forgotten, its batch is dropped, and
its neighbours are packed again when they are due. All of it ends with the term.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from coordinator.batching import Packed, pack
from coordinator.loaded import LoadedJobs
from coordinator.slots import Slots
from coordinator.wheel import TICK_SHIFT, Wheel
from cronstream.clock import SECOND

# Fewer slots than this at one instant are packed when they are due: that takes well below a millisecond.
ALIKE = 256
# Slots packed in one step: a few milliseconds.
_STEP = 4096
# A batch that is late by so much may hold jobs that misfired; their policies decide then.
_ON_TIME_US = SECOND


class Ahead:
    """What is packed and not due. One thread owns it: the dispatcher's."""

    def __init__(
        self, jobs: LoadedJobs, wheel: Wheel, token: int, *, ahead_us: int, most: int, alike: int = ALIKE
    ) -> None:
        """``ahead_us`` is how far it looks for instants with at least ``alike`` slots.

        It holds at most ``most`` items (and those of the tick that takes it there), whose bodies are copies.
        """
        self._jobs = jobs
        self._wheel = wheel
        self._token = token
        self._ahead_us = ahead_us
        self._most = most
        self._alike = alike
        self._tick = 0
        """The next tick of the wheel to look at."""
        self._waiting: deque[tuple[int, Slots]] = deque()
        """Slots that were armed for an instant when its tick was looked at."""
        self._ready: deque[tuple[int, Packed]] = deque()
        """By instant: each batch under its number."""
        self._held = 0
        self._number = 0
        self._number_of = np.zeros(0, np.int32)
        """By slot: the number of the batch that it is packed in; 0 when it is in none."""

    def __len__(self) -> int:
        return self._held

    def step(self, now_us: int) -> bool:
        """Look at another tick or pack another piece; False when there is nothing to do."""
        if self._waiting:
            self._pack(*self._waiting.popleft())
            return True
        tick = max(self._tick, (now_us >> TICK_SHIFT) + 1)
        if tick << TICK_SHIFT > now_us + self._ahead_us or self._held >= self._most:
            return False
        self._tick = tick + 1
        self._look_at(tick)
        return True

    def take(self, due: Slots, now_us: int) -> tuple[deque[Packed], Slots]:
        """The batches to publish now, and the slots of ``due`` (all on time) that are in none of them."""
        if not self._ready:
            return deque(), due
        self._grow()
        ready: deque[Packed] = deque()
        taken = np.zeros(len(self._number_of), np.bool_)
        while self._ready and _instant(self._ready[0][1]) <= now_us:
            number, packed = self._ready.popleft()
            self._held -= len(packed.slots)
            still = self._number_of[packed.slots] == number
            self._number_of[packed.slots[still]] = 0
            if still.all() and now_us - _instant(packed) < _ON_TIME_US:
                taken[packed.slots] = True
                ready.append(packed)
        return (ready, due[~taken[due]]) if ready else (ready, due)

    def forget(self, slot: int) -> None:
        """The slot's job was edited, or is held no more."""
        if slot < len(self._number_of):
            self._number_of[slot] = 0

    def _look_at(self, tick: int) -> None:
        slots = self._wheel.filed(tick)
        if len(slots) < self._alike:
            return
        at = self._wheel.instants(slots)
        order = np.argsort(at, kind="stable")
        instants, starts, counts = np.unique(at[order], return_index=True, return_counts=True)
        many = counts >= self._alike
        for instant, start, count in zip(
            *(column[many].tolist() for column in (instants, starts, counts)), strict=True
        ):
            alike = slots[order[start : start + count]]
            self._waiting.extend((instant, alike[low : low + _STEP]) for low in range(0, count, _STEP))

    def _pack(self, instant: int, slots: Slots) -> None:
        self._grow()
        still = slots[self._wheel.instants(slots) == instant]
        for packed in pack(self._jobs, still, self._token):
            self._number += 1
            self._number_of[packed.slots] = self._number
            self._ready.append((self._number, packed))
            self._held += len(packed.slots)

    def _grow(self) -> None:
        missing = len(self._jobs.job_id) - len(self._number_of)
        if missing > 0:
            self._number_of = np.concatenate([self._number_of, np.zeros(missing, np.int32)])


def _instant(packed: Packed) -> int:
    return int(packed.batch.scheduled[0])
