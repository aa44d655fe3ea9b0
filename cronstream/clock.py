"""The only module that reads time or sleeps.

Three clocks, never mixed:

- *wall*: the system's UTC clock, microseconds since the epoch. May jump. The
  coordinator compares it with the database's and otherwise leaves it alone.
- *boot*: CLOCK_BOOTTIME, nanoseconds. Never jumps, runs on through a suspend.
  Durations, deadlines and trust windows are measured with it.
- *database*: an ``Anchor`` taken from Postgres plus the boot time elapsed
  since. It decides what is due.

Instants are integers: microseconds since the Unix epoch, UTC (``_us``).
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Protocol

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """What a process needs of time; tests pass a ``FakeClock``."""

    def wall_us(self) -> int:
        """The system clock: microseconds since the epoch, UTC."""

    def boot_ns(self) -> int:
        """CLOCK_BOOTTIME in nanoseconds: for durations and deadlines."""

    def sleep(self, seconds: float) -> None:
        """Block this thread."""

    async def asleep(self, seconds: float) -> None:
        """Suspend this task."""


class SystemClock:
    """The real clocks of this machine."""

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def boot_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class FakeClock:
    """A clock that moves only when told to. ``sleep`` advances it and returns at once."""

    def __init__(self, wall_us: int = 0, boot_ns: int = 0) -> None:
        self._wall_us = wall_us
        self._boot_ns = boot_ns
        self._lock = threading.Lock()

    def wall_us(self) -> int:
        return self._wall_us

    def boot_ns(self) -> int:
        return self._boot_ns

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    async def asleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks; refuses to go back, as boot time does."""
        if seconds < 0:
            raise ValueError("boot time never goes back; use step_wall for a wall clock step")
        with self._lock:
            self._wall_us += round(seconds * 1e6)
            self._boot_ns += round(seconds * 1e9)

    def step_wall(self, seconds: float) -> None:
        """Step the system clock alone, as NTP or a person would."""
        self._wall_us += round(seconds * 1e6)


@dataclass(frozen=True, slots=True)
class Anchor:
    """The database's clock, read once and carried on by boot time.

    ``database_us`` was the database's clock at ``boot_ns``. The reading lies
    between sending the query and its answer; taking the *sending* side's boot
    time would run the anchor early, so ``boot_ns`` is that of the answer: the
    anchor can only be late, by less than a round trip, and never early.
    """

    database_us: int
    boot_ns: int

    def now_us(self, boot_ns: int) -> int:
        """The database's clock now, given the boot time now."""
        return self.database_us + (boot_ns - self.boot_ns) // 1000


def to_datetime(instant_us: int) -> datetime:
    """An aware UTC datetime, exact to the microsecond."""
    return _EPOCH + timedelta(microseconds=instant_us)


def to_us(instant: datetime) -> int:
    """Microseconds since the epoch of an aware datetime."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


def iso(instant_us: int) -> str:
    """``2026-03-08T07:00:00Z``, with a fraction only where there is one."""
    second, fraction = divmod(instant_us, SECOND)
    return f"{_to_the_second(second)}.{fraction:06d}Z" if fraction else f"{_to_the_second(second)}Z"


@lru_cache(maxsize=4096)
def _to_the_second(second: int) -> str:
    return to_datetime(second * SECOND).isoformat().removesuffix("+00:00")
