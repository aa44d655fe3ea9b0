"""The timing wheel: which slots are due, for ten million of them, without looking at most.

What it is for
--------------
The leader holds everything that falls due in the next minutes and asks every few
milliseconds: "what is due now?". A heap answers in O(log n) for each entry and keeps a
Python object for each; at ten million entries both hurt. A wheel files an entry under the
stretch of time it falls into (a *bucket*) and looks into a bucket only when its time comes.

The parts
---------
- A *slot* is a small integer that the caller owns: the row of its column tables. The wheel
  knows nothing else about an entry.
- ``at`` is a column, slot -> instant (microseconds since the epoch, UTC). It is the truth.
- A *bucket* is an ``array('i')`` of slots. A bucket is only a hint where to look: an entry
  in it counts if ``at`` still says so. Cancelling and re-arming therefore just write the
  column; what they leave behind in a bucket is *stale* and falls out when the bucket opens.
- Three *levels* hold buckets of different width. Widths are powers of two, so a bucket's
  number is a shift and its start is a shift back:

      level    width             holds what is due in
      ticks    2^17 us = 131 ms  the next 64 ticks   (8.4 s)
      spans    2^23 us = 8.4 s   the next 128 spans  (17.9 min)
      blocks   2^30 us = 17.9 m  any later time (a dict, so there is no end of the wheel)

- *near* is the bucket of the current tick and of everything before it.
- Each level keeps a heap of the numbers of its occupied buckets, one entry a bucket, so an
  empty hour costs nothing: the next occupied bucket is the heap's head.

A worked example, with now = 0 s and times in seconds
-----------------------------------------------------
    arm(7, 0.05)  tick 0 is the current one           -> near
    arm(8, 2.00)  tick 15, fewer than 64 ahead        -> ticks[15], from 1.97 s to 2.10 s
    arm(9, 60.0)  458 ticks ahead, span 7             -> spans[7],  from 58.7 s to 67.1 s

    pop_due(0.04) 0.05 > 0.04: the exact instant is compared, never the bucket -> []
    pop_due(0.05)                                                              -> [7]
    arm(9, 61.0)  only the column changes; spans[7] now holds slot 9 twice
    cancel(8)     only the column changes; ticks[15] still holds slot 8
    next_at()     1.97 s, where the next occupied bucket starts: sleep until then
    pop_due(58.8) opens ticks[15]: slot 8 is not armed, dropped; opens spans[7]: slot 9 is
                  due at 61.0 s, 17 ticks ahead, so it moves to ticks[465]     -> []
    pop_due(61.0) opens ticks[465]: slot 9, twice; handed out once             -> [9]

What it promises
----------------
- Never early: a slot is handed out only when ``at[slot] <= now``, whatever its bucket.
- Each once: handing out disarms. Order is by (instant, slot), so equal calls give equal answers.
- ``arm``, ``cancel`` and handing out cost O(1) for each entry: an entry moves at most twice
  (block -> span -> tick) on its way. ``pop_due`` when nothing can be due is one comparison.
- Memory: 8 bytes for the column and about 5 for the bucket. When stale entries outnumber the
  armed ones the buckets are rebuilt from the column.

Who may call: one thread. The wheel reads no clock, does no I/O and never sleeps.
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

Slots = npt.NDArray[np.int32]
Instants = npt.NDArray[np.int64]

TICK_SHIFT: Final = 17
SPAN_SHIFT: Final = 23
BLOCK_SHIFT: Final = 30
TICKS_A_SPAN: Final = 1 << (SPAN_SHIFT - TICK_SHIFT)
SPANS_A_BLOCK: Final = 1 << (BLOCK_SHIFT - SPAN_SHIFT)

NEVER: Final = 2**63 - 1
"""In the column: not armed. Greater than every instant, so that no comparison takes it for due."""

_CHUNK: Final = 1 << 18
"""Entries filed in one go: temporary arrays stay in the cache and small beside the wheel."""

_SLOT_BITS: Final = 32
_EMPTY: Final[Slots] = np.empty(0, dtype=np.int32)
_EMPTY.flags.writeable = False


class Level:
    """Buckets of one width, by number, with a heap of the numbers that are occupied."""

    __slots__ = ("buckets", "occupied", "shift")

    def __init__(self, shift: int) -> None:
        self.shift = shift
        self.buckets: dict[int, array[int]] = {}
        self.occupied: list[int] = []

    def bucket(self, number: int) -> array[int]:
        """The bucket of that number, made if there is none."""
        bucket = self.buckets.get(number)
        if bucket is None:
            bucket = self.buckets[number] = array("i")
            heappush(self.occupied, number)
        return bucket

    def first_start(self) -> int:
        """The instant at which the first occupied bucket starts; NEVER without one."""
        return self.occupied[0] << self.shift if self.occupied else NEVER

    def take(self, now_us: int) -> tuple[int, array[int]] | None:
        """Remove and return the first bucket if it has started."""
        if self.first_start() > now_us:
            return None
        number = heappop(self.occupied)
        return number, self.buckets.pop(number)


class Wheel:
    """Slots by instant; see the module's text. Instants are microseconds since the epoch, UTC."""

    _near: array[int]
    _levels: tuple[Level, Level, Level]
    _filed: int  # entries in near and in all buckets, stale ones included
    _next: int  # nothing can be due before

    def __init__(self, now_us: int, *, capacity: int = 1024) -> None:
        self._column = array("q", [NEVER]) * max(capacity, 1)
        self._at: Instants = np.frombuffer(self._column, dtype=np.int64)  # the same memory
        self._tick = now_us >> TICK_SHIFT
        self._live = 0
        self._slack = _slack(len(self._column))
        self._empty()

    # ---- arming ----------------------------------------------------------------------------

    def arm(self, slot: int, at_us: int) -> None:
        """Make a slot due at an instant, past ones included; replaces what was armed before."""
        column = self._column
        if not 0 <= slot < len(column):
            self._grow(slot)
            column = self._column
        if at_us >= NEVER:
            raise ValueError(f"instant {at_us} is beyond the wheel's range")
        if column[slot] == NEVER:
            self._live += 1
        column[slot] = at_us
        ahead = (at_us >> TICK_SHIFT) - self._tick
        if ahead <= 0:
            self._near.append(slot)
            start = at_us
        else:
            level = self._level(at_us, ahead)
            number = at_us >> level.shift
            level.bucket(number).append(slot)
            start = number << level.shift
        if start < self._next:
            self._next = start
        self._filed += 1
        if self._filed > 2 * self._live + self._slack:
            self._rebuild()

    def arm_many(self, slots: npt.ArrayLike, at_us: npt.ArrayLike) -> None:
        """``arm`` for each pair; when a slot is named twice, the last one holds."""
        slots = np.ascontiguousarray(slots, dtype=np.int32)
        at = np.ascontiguousarray(at_us, dtype=np.int64)
        if slots.shape != at.shape or slots.ndim != 1:
            raise ValueError(f"slots {slots.shape} and instants {at.shape} do not pair up")
        if not slots.size:
            return
        if slots.min() < 0:
            raise IndexError(f"slot {slots.min()} is negative")
        if at.max() >= NEVER:
            raise ValueError(f"instant {at.max()} is beyond the wheel's range")
        if slots.max() >= len(self._column):
            self._grow(int(slots.max()))
        for low in range(0, slots.size, _CHUNK):
            part, instants = slots[low : low + _CHUNK], at[low : low + _CHUNK]
            self._live += self._count_new(part)
            self._at[part] = instants
            self._file(part, instants)
        if self._filed > 2 * self._live + self._slack:
            self._rebuild()

    def cancel(self, slot: int) -> None:
        """Disarm a slot; one that is not armed is left as it is."""
        if 0 <= slot < len(self._column) and self._column[slot] != NEVER:
            self._column[slot] = NEVER
            self._live -= 1
            if self._filed > 2 * self._live + self._slack:
                self._rebuild()

    # ---- asking ----------------------------------------------------------------------------

    def at(self, slot: int) -> int | None:
        """The instant a slot is armed for, or None."""
        if not 0 <= slot < len(self._column):
            return None
        at_us = self._column[slot]
        return None if at_us == NEVER else at_us

    def instants(self, slots: Slots) -> Instants:
        """What each of these slots is armed for (NEVER: it is not); each must have been armed once."""
        return self._at[slots]

    def next_at(self) -> int | None:
        """No slot is due before this instant; None when nothing is armed.

        It is exact for the current tick (unless that entry was cancelled) and else the start
        of the next occupied bucket: a driver sleeps until then, pops, and asks again.
        """
        return self._next if self._live else None

    def __len__(self) -> int:
        return self._live

    def nbytes(self) -> int:
        """Bytes held by the column and the buckets."""
        buckets = [b for level in self._levels for b in level.buckets.values()]
        return sum(b.__sizeof__() for b in [self._column, self._near, *buckets])

    # ---- time ------------------------------------------------------------------------------

    def pop_due(self, now_us: int) -> Slots:
        """Disarm and return the slots with ``at <= now_us``, ordered by (instant, slot)."""
        if now_us < self._next:
            return _EMPTY
        self._advance(now_us)
        near = np.frombuffer(self._near, dtype=np.int32)
        at = self._at[near]
        is_due = at <= now_us
        due = _ordered(near[is_due], at[is_due])
        # What is left waits in the current tick; anything later than that is stale.
        waits = ~is_due
        waits &= at < (self._tick + 1) << TICK_SHIFT
        rest = near[waits]
        self._filed += rest.size - near.size
        self._near = array("i")
        _extend(self._near, rest)
        self._at[due] = NEVER
        self._live -= due.size
        self._next = min(
            int(at[waits].min()) if rest.size else NEVER,
            *(level.first_start() for level in self._levels),
        )
        return due

    def filed(self, tick: int) -> Slots:
        """The slots armed within a tick that has not begun, each once, in their order; they stay armed."""
        self._lower(tick << TICK_SHIFT)
        bucket = self._ticks.buckets.get(tick)
        if bucket is None:
            return _EMPTY
        slots: Slots = np.unique(np.frombuffer(bucket, dtype=np.int32))
        within: Slots = slots[(self._at[slots] >> TICK_SHIFT) == tick]
        return within

    def _advance(self, now_us: int) -> None:
        """Open every bucket that has started."""
        self._tick = max(self._tick, now_us >> TICK_SHIFT)
        self._lower(now_us)
        while taken := self._ticks.take(now_us):
            self._near.extend(taken[1])

    def _lower(self, until_us: int) -> None:
        """What lies in wider buckets that begin by then moves one level down; widest first."""
        for level, below in ((self._blocks, self._spans), (self._spans, self._ticks)):
            while taken := level.take(until_us):
                number, bucket = taken
                slots = np.frombuffer(bucket, dtype=np.int32)
                at = self._at[slots]
                holds = (at >> level.shift) == number
                self._filed -= slots.size
                self._file_level(below, slots[holds], at[holds])

    # ---- filing ----------------------------------------------------------------------------

    def _level(self, at_us: int, ahead: int) -> Level:
        """The level for an instant that many ticks ahead (at least one)."""
        if ahead < TICKS_A_SPAN:
            return self._ticks
        if (at_us >> SPAN_SHIFT) - (self._tick >> (SPAN_SHIFT - TICK_SHIFT)) < SPANS_A_BLOCK:
            return self._spans
        return self._blocks

    def _file(self, slots: Slots, at: Instants) -> None:
        """Put slots into the buckets of their instants, near included."""
        if not slots.size:
            return
        first, last = int(at.min()), int(at.max())
        ahead = (first >> TICK_SHIFT) - self._tick
        if (last >> TICK_SHIFT) <= self._tick:
            _extend(self._near, slots)
            self._filed += slots.size
            self._next = min(self._next, first)
            return
        if ahead > 0 and (level := self._level(first, ahead)) is self._level(last, (last >> TICK_SHIFT) - self._tick):
            self._file_level(level, slots, at)
            return
        # Several levels: the ends of near, ticks and spans cut the instants into four parts.
        span = self._tick >> (SPAN_SHIFT - TICK_SHIFT)
        ends = (
            (self._tick + 1) << TICK_SHIFT,
            (self._tick + TICKS_A_SPAN) << TICK_SHIFT,
            (span + SPANS_A_BLOCK) << SPAN_SHIFT,
        )
        parts = np.searchsorted(np.array(ends, dtype=np.int64), at, side="right")
        for part in range(4):
            chosen = parts == part
            if chosen.any():
                self._file(slots[chosen], at[chosen])

    def _file_level(self, level: Level, slots: Slots, at: Instants) -> None:
        if not slots.size:
            return
        numbers = at >> level.shift
        first, last = int(numbers.min()), int(numbers.max())
        self._filed += slots.size
        self._next = min(self._next, first << level.shift)
        if first == last:
            _extend(level.bucket(first), slots)
            return
        numbers -= first
        if last - first < 2**15:
            order = np.argsort(numbers.astype(np.int16), kind="stable")  # a radix sort
        else:
            order = np.argsort(numbers, kind="stable")
        slots, numbers = slots[order], numbers[order]
        cuts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), slots.size]
        for low, high in pairwise(cuts):
            _extend(level.bucket(first + int(numbers[low])), slots[low:high])

    def _count_new(self, slots: Slots) -> int:
        """How many distinct slots of these are not armed yet."""
        new = np.sort(slots[self._at[slots] == NEVER])
        return int(np.count_nonzero(new[1:] != new[:-1])) + (new.size > 0)

    def _grow(self, slot: int) -> None:
        if slot < 0:
            raise IndexError(f"slot {slot} is negative")
        size = max(slot + 1, len(self._column) * 5 // 4)
        self._at = np.empty(0, dtype=np.int64)  # an array with a view on it cannot be resized
        self._column.extend(array("q", [NEVER]) * (size - len(self._column)))
        self._at = np.frombuffer(self._column, dtype=np.int64)
        self._slack = _slack(size)

    def _rebuild(self) -> None:
        """File everything anew from the column: stale entries are gone."""
        self._empty()
        for low in range(0, len(self._column), _CHUNK):
            at = self._at[low : low + _CHUNK]
            slots = np.flatnonzero(at != NEVER)
            self._file((slots + low).astype(np.int32), at[slots])

    def _empty(self) -> None:
        self._near = array("i")
        self._ticks = Level(TICK_SHIFT)
        self._spans = Level(SPAN_SHIFT)
        self._blocks = Level(BLOCK_SHIFT)
        self._levels = (self._ticks, self._spans, self._blocks)
        self._filed = 0
        self._next = NEVER


def _slack(capacity: int) -> int:
    """Stale entries beyond the live ones that a rebuild, which walks the column, is worth."""
    return max(1024, capacity // 16)


def _extend(bucket: array[int], slots: Slots) -> None:
    bucket.frombytes(slots.view(np.uint8))  # type: ignore[arg-type]  # any buffer of bytes will do


def _ordered(slots: Slots, at: Instants) -> Slots:
    """Sorted by (instant, slot), each once."""
    if not slots.size:
        return _EMPTY
    first, last = int(at.min()), int(at.max())
    if last - first < 2**31:
        keys = ((at - first) << _SLOT_BITS) | slots
        keys.sort()
    else:  # long overdue entries: too far apart to pack both into one integer
        order = np.lexsort((slots, at))
        slots = slots[order]
        keys = slots.astype(np.int64)
    keep = np.empty(keys.size, dtype=np.bool_)
    keep[0] = True
    np.not_equal(keys[1:], keys[:-1], out=keep[1:])
    return keys[keep].astype(np.int32)  # the low half is the slot
