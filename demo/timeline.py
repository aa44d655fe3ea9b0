"""The machine's boot clock in terms of the database's clock.

The database's clock decides what is early. It is read again and again, between
two readings of CLOCK_BOOTTIME; an instant is translated by the reading nearby
that took the least time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg

from cronstream.clock import Clock

_NEARBY_NS = 10_000_000_000
_READ = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class Reading(NamedTuple):
    """The database's clock stood at ``database_us`` at ``boot_ns``, give or take half of ``took_ns``."""

    boot_ns: int
    database_us: int
    took_ns: int


class Timeline:
    """Readings of one run."""

    def __init__(self, clock: Clock, readings: Sequence[Reading] = ()) -> None:
        self._clock = clock
        self._readings = list(readings)

    def read(self, connection: psycopg.Connection[Any]) -> int:
        """Take a reading; the database's time now, in microseconds."""
        before = self._clock.boot_ns()
        row = connection.execute(_READ).fetchone()
        after = self._clock.boot_ns()
        assert row is not None
        self._readings.append(Reading((before + after) // 2, int(row[0]), after - before))
        return int(row[0])

    def now_us(self) -> int:
        """The database's time now, from the readings."""
        return self.database_us(self._clock.boot_ns())

    def database_us(self, boot_ns: int) -> int:
        """The database's time at an instant of the boot clock."""
        nearest = min(abs(reading.boot_ns - boot_ns) for reading in self._readings)
        nearby = (r for r in self._readings if abs(r.boot_ns - boot_ns) <= nearest + _NEARBY_NS)
        best = min(nearby, key=lambda reading: reading.took_ns)
        return best.database_us + (boot_ns - best.boot_ns) // 1000
