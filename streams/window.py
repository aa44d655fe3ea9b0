"""What admission remembers of a partition: one immutable row a record, for ten minutes.

    row of offset o:  token, published_at, clock after o, refused?, keys of the runs admitted (keys.py)

A partition of admission has two origins, triggers and due retries; a row is of an offset of one of them. Both
share the keys and the clock; tokens are the triggers' alone.

Everything else is derived from the rows, in offset order, when the partition is
taken over: the keys by stretch (``IntSet``), the running clock, and the *steps*,
the offsets at which the token rose. Nothing is written twice with another
value, so a process that lost the partition without knowing cannot harm the
state of its successor: for the same record it writes the same row.

The running clock is the maximum of published_at, but no record raises it by
more than a minute, so one wild record cannot empty the window. A row leaves
when the clock has moved on by the window since the row was written, and this process has had the row for half
the window: after an outage the clock jumps over it within moments, while what was sent before the
outage still comes again. The row that first carried the newest token stays until a newer one comes, so a stale
leader stays refused however long its silence was.

Memory: 16 bytes a run and 600 a row. A full window of 8,300 triggers/s, each at a time of its own, in 480 records
a second is 280 MB over all partitions, in 70 records 110 MB. What is caught up after an outage stays beside it for
half the window.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from enum import IntEnum

import msgspec
import numpy as np
import numpy.typing as npt

from cronstream.clock import MINUTE
from cronstream.records import Int64s
from streams.intset import IntSet
from streams.keys import Stretch

Mask = npt.NDArray[np.bool_]
_LEAVE_AT_ONCE = 32
"""With a record, at most so many rows: minutes of them have aged together, half a window after a takeover."""

Place = tuple[int, int]
"""(origin, offset): a record of one of the two topics."""


class Keys(msgspec.Struct, array_like=True, frozen=True):
    """Keys of one stretch: the smallest, and the steps between them, packed."""

    stretch: Stretch
    first: int
    width: int
    steps: bytes

    @classmethod
    def of(cls, stretch: Stretch, keys: Int64s) -> Keys:
        """Pack sorted, distinct keys."""
        if len(keys) == 1:
            return cls(stretch, int(keys[0]), 1, b"")
        steps = np.diff(keys.view(np.uint64))
        widest = int(steps.max()) if len(steps) else 0
        width = next(width for width in (1, 2, 4, 8) if widest < 1 << 8 * width)
        return cls(stretch, int(keys[0]), width, steps.astype(f"<u{width}").tobytes())

    def array(self) -> Int64s:
        """The keys, sorted."""
        if not self.steps:
            return np.array([self.first], np.int64)
        steps = np.frombuffer(self.steps, f"<u{self.width}")
        keys = np.full(len(steps) + 1, self.first, np.int64)
        keys[1:] += np.cumsum(steps, dtype=np.uint64).view(np.int64)
        return keys


class Origin(IntEnum):
    """Which of the two topics a record came from."""

    TRIGGERS = 0
    RETRIES = 1


class Row(msgspec.Struct, array_like=True, frozen=True):
    """What was decided about the record at ``offset``."""

    offset: int
    token: int
    published_at: int
    clock: int
    refused: bool
    admitted: tuple[Keys, ...]
    origin: int = Origin.TRIGGERS
    cancelled: tuple[Keys, ...] = ()
    """Retries that ended because their job was deleted."""

    @property
    def place(self) -> Place:
        """Which record it is about."""
        return (self.origin, self.offset)

    @property
    def key(self) -> bytes:
        """The row's key in the table: sorts by origin and offset."""
        return key_of(self.place)

    @property
    def decided(self) -> tuple[Keys, ...]:
        """All the runs that it keeps from being decided again."""
        return self.admitted + self.cancelled if self.cancelled else self.admitted

    def encode(self) -> bytes:
        """The row's value in the table."""
        return _encoder.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> Row:
        """A row as stored. Raises msgspec.MsgspecError."""
        return _decoder.decode(value)


def key_of(place: Place) -> bytes:
    """A row's key: the origin, and the offset big-endian."""
    origin, offset = place
    return bytes([origin]) + offset.to_bytes(8, "big")


class Window:
    """A partition's rows and what is derived from them. Changed by ``add`` alone."""

    def __init__(self, window_us: int, rows: Iterable[Row] = (), now_us: int = 0) -> None:
        """``now_us`` here and in ``add`` is time of this process, from any beginning."""
        self._window_us = window_us
        self._keys: dict[Stretch, IntSet] = {}
        self._rows: dict[Place, Row] = {}
        self._ages: deque[tuple[Place, int]] = deque()
        """The rows that have not left, oldest first, and since when this process has had them."""
        self._steps: list[tuple[int, int]] = []
        self._clock: int | None = None
        self._kept: Place | None = None
        """The aged row that first carried the newest token, once there is one."""
        # Within an origin the clock never falls, so this is also each origin's own order.
        for row in sorted(rows, key=lambda row: (row.clock, row.origin, row.offset)):
            self.add(row, now_us)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def runs(self) -> int:
        """How many admitted runs are held."""
        return sum(map(len, self._keys.values()))

    def clock_after(self, published_at: int) -> int:
        """The running clock once a record of ``published_at`` is taken."""
        if self._clock is None:
            return published_at
        return max(self._clock, min(published_at, self._clock + MINUTE))

    def newest_token_before(self, offset: int) -> int:
        """The newest token seen at an offset smaller than ``offset``; -1 if none was."""
        at = bisect_left(self._steps, (offset, -1))
        return self._steps[at - 1][1] if at else -1

    def row(self, place: Place, token: int, published_at: int) -> Row | None:
        """The stored decision about exactly this record."""
        row = self._rows.get(place)
        if row is None or (row.token, row.published_at) != (token, published_at):
            return None
        return row

    def known(self, stretch: Stretch, keys: Int64s) -> Mask:
        """Which of a stretch's keys are admitted already."""
        held = self._keys.get(stretch)
        return held.known(keys) if held is not None else np.zeros(len(keys), np.bool_)

    def add(self, row: Row, now_us: int) -> list[bytes]:
        """Remember a decision. Returns the keys that leave the table because of it."""
        gone: list[bytes] = []
        old = self._rows.get(row.place)
        if old != row:
            if old is None:
                self._ages.append((row.place, now_us))
            elif row.place == self._kept:
                self._ages.append((row.place, now_us))
                self._kept = None
            else:
                self._forget(old)
            self._rows[row.place] = row
            for packed in row.decided:
                self._keys.setdefault(packed.stretch, IntSet()).add(packed.array())
            if self._step(row) and self._kept is not None:
                gone.append(self._drop(self._kept))
                self._kept = None
            self._clock = row.clock if self._clock is None else max(row.clock, self._clock)
        while self._ages and len(gone) < _LEAVE_AT_ONCE and self._has_aged(*self._ages[0], now_us):
            place, _ = self._ages.popleft()
            self._forget(self._rows[place])
            if place == self._newest_step:
                self._kept = place
            else:
                gone.append(self._drop(place))
        return gone

    def _has_aged(self, place: Place, since_us: int, now_us: int) -> bool:
        assert self._clock is not None
        by_the_clock = self._rows[place].clock + self._window_us < self._clock
        return by_the_clock and now_us - since_us > self._window_us // 2

    def _forget(self, row: Row) -> None:
        for packed in row.decided:
            held = self._keys[packed.stretch]
            held.discard(packed.array())
            if not len(held):
                del self._keys[packed.stretch]

    @property
    def _newest_step(self) -> Place | None:
        """The row that first carried the newest token."""
        return (Origin.TRIGGERS, self._steps[-1][0]) if self._steps else None

    def _drop(self, place: Place) -> bytes:
        del self._rows[place]
        if self._steps and place == (Origin.TRIGGERS, self._steps[0][0]):
            self._steps = []
            for row in sorted(self._rows.values(), key=lambda row: row.offset):
                self._step(row)
        return key_of(place)

    def _step(self, row: Row) -> bool:
        rises = row.origin == Origin.TRIGGERS and row.token > self.newest_token_before(row.offset)
        if rises:
            insort(self._steps, (row.offset, row.token))
        return rises


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Row)
