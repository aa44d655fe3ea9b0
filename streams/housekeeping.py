"""Beside the history sink: partitions a week ahead, and old days into files, once an hour.

Every sink does it; a lock in Postgres lets one at a time let days go. What fails is tried
again sooner, and nothing of it stops the sink.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from cronstream.clock import Clock, to_datetime
from streams.days import Days, HistoryError, alone

log = logging.getLogger(__name__)

AHEAD_DAYS = 7
EVERY_SECONDS = 3600.0
AGAIN_SECONDS = 60.0


class Housekeeping:
    """``run`` in a thread of its own, until ``stop``."""

    def __init__(
        self, connect: Callable[[], psycopg.Connection[Any]], folder: Path | None, days: int, clock: Clock
    ) -> None:
        self._connect = connect
        self._folder = folder
        self._days = days
        self._clock = clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def start(self) -> None:
        """Begin at once, then go on every hour."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End after the step under way, or leave it: any step may be the last."""
        self._stop.set()
        self._thread.join(seconds)

    def tidy(self) -> None:
        """One round. Raises psycopg.Error, OSError, pyarrow.ArrowException or HistoryError."""
        with self._connect() as connection:
            connection.autocommit = True
            today = to_datetime(self._clock.wall_us()).date()
            for ahead in range(-1, AHEAD_DAYS + 1):
                connection.execute("SELECT cronstream.ensure_job_runs_partition(%s)", (today + timedelta(days=ahead),))
            if self._folder is not None:
                self._let_go(Days(connection, self._folder), today - timedelta(days=self._days))

    def _let_go(self, days: Days, keep_from: date) -> None:
        with alone(self._connect) as granted:
            if not granted:
                return
            days.finish()
            for partition in days.attached():
                if self._stop.is_set():
                    return
                day, last_day, source = partition["day"], partition["last_day"], partition["source"]
                if partition["kept"]:
                    continue
                # A backfill, or a skip of long ago, writes to old days: whoever asked for it looks for it now.
                if last_day < keep_from and not days.written_since(source, keep_from):
                    days.let_go(day, source)
                elif last_day > day:
                    days.let_go_aged(day, source, keep_from)

    def _run(self) -> None:
        while not self._stop.is_set():
            pause = EVERY_SECONDS
            try:
                self.tidy()
            except (psycopg.Error, OSError, pa.ArrowException, HistoryError) as error:
                log.warning("History is not tidied, trying again later: %s", error, extra={"action": "tidy"})
                pause = AGAIN_SECONDS
            self._stop.wait(pause)
