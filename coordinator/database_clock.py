"""The clock that decides what is due: Postgres' own, carried on by boot time.

On taking office and every few seconds the system's clock and the database's are
compared. Too far apart, and nobody knows what time it is: the term ends and
nothing is published. While Postgres is away the anchor runs on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import psycopg

import sql
from cronstream.clock import SECOND, Anchor, Clock
from cronstream.settings import CoordinatorSettings
from sql.queries import load

log = logging.getLogger(__name__)
queries = load("coordinator")

# An answer slower than this says too little about the difference between two clocks.
_LONGEST_ROUND_TRIP_NS = 200_000_000


class ClocksDiffer(Exception):
    """The system's clock and the database's are too far apart to lead."""


class DatabaseClock:
    """Instants by the database's clock, for any thread."""

    def __init__(self, settings: CoordinatorSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._anchor: Anchor | None = None
        self._connection: psycopg.Connection[Any] | None = None
        self._thread: threading.Thread | None = None

    def now_us(self) -> int:
        """The database's clock now. Never ahead of it; behind by less than a round trip."""
        assert self._anchor is not None
        return self._anchor.now_us(self._clock.boot_ns())

    def boot_ns(self) -> int:
        """This machine's boot time, for durations."""
        return self._clock.boot_ns()

    def read(self) -> None:
        """Take a new anchor. Raises ClocksDiffer, or psycopg.Error when Postgres is away."""
        if self._connection is None or self._connection.closed:
            self._connection = sql.connect(self._settings, "clock", autocommit=True)
        sent_ns, sent_us = self._clock.boot_ns(), self._clock.wall_us()
        row = self._connection.execute(queries["read_clock"]).fetchone()
        answered_ns, answered_us = self._clock.boot_ns(), self._clock.wall_us()
        assert row is not None
        database_us = int(row[0])
        if answered_ns - sent_ns > _LONGEST_ROUND_TRIP_NS and self._anchor is not None:
            return
        ahead_us = max(sent_us - database_us, database_us - answered_us, 0)
        if ahead_us > self._settings.clock_tolerance_seconds * SECOND:
            raise ClocksDiffer(
                f"the system's clock and the database's are {ahead_us / SECOND:.3f} s apart; "
                f"at most {self._settings.clock_tolerance_seconds} s are allowed: synchronise them"
            )
        self._anchor = Anchor(database_us, answered_ns)

    def watch(self, stop: threading.Event, end_term: Callable[[str], None]) -> None:
        """Read again every few seconds until ``stop``; end the term if the clocks differ."""

        def run() -> None:
            while not stop.wait(self._settings.clock_check_seconds):
                try:
                    self.read()
                except ClocksDiffer as error:
                    end_term(str(error))
                    return
                except psycopg.Error as error:
                    log.warning("The clock's anchor runs on, Postgres does not answer: %s", str(error).splitlines()[0])

        self._thread = threading.Thread(target=run, name="clock", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """After ``stop`` was set."""
        if self._thread is not None:
            self._thread.join(1)
        if self._connection is not None:
            self._connection.close()
