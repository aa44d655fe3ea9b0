"""What a term has done so far, counted by the dispatcher and asked for by operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from coordinator.database_clock import DatabaseClock
from coordinator.lateness import Lateness
from cronstream.clock import SECOND
from cronstream.records import RUN_KINDS, Int64s, Item, Kind

_RUNS = frozenset(RUN_KINDS.values())
_NO_TIMES = np.empty(0, np.int64)


class Figures:
    """One thread counts, any may ask."""

    def __init__(self, clock: DatabaseClock) -> None:
        self._clock = clock
        self.lateness = Lateness()
        """Of the last minute's runs: from the scheduled time to the broker's acknowledgement."""
        self.capture_lag = Lateness()
        """Of the last minute's edits: from the commit to the plan."""
        self.published = 0
        """Runs of the schedule's own."""
        self.skipped = 0
        self.requested = 0
        """Runs of requests."""
        self._capture_lag_ms: float | None = None
        self._first_publish_ns: int | None = None

    def acknowledged(self, times: Int64s = _NO_TIMES, items: Sequence[Item] = ()) -> None:
        """The broker has just taken runs with these scheduled times, and these items."""
        now_us = self._clock.now_us()
        if items:
            times = np.concatenate(
                [times, np.array([item.scheduled_us for item in items if item.kind in _RUNS], np.int64)]
            )
            self.skipped += sum(item.kind is Kind.SKIP for item in items)
        self.published += len(times)
        if times.size:
            if self._first_publish_ns is None:
                self._first_publish_ns = self._clock.boot_ns()
            self.lateness.record(now_us // SECOND, now_us - times)

    def planned(self, committed_us: Sequence[int]) -> None:
        """Edits that were committed then have just been planned; at least one."""
        now_us = self._clock.now_us()
        lags = now_us - np.array(committed_us, np.int64)
        self.capture_lag.record(now_us // SECOND, lags)
        self._capture_lag_ms = int(lags[-1]) / 1000

    def shown(self, since_ns: int) -> dict[str, Any]:
        """As JSON; ``since_ns``: the boot time at which the term began."""
        now_second = self._clock.now_us() // SECOND
        p50, p99 = self.lateness.quantiles_ms(now_second, (0.5, 0.99))
        lag_p50, lag_p99 = self.capture_lag.quantiles_ms(now_second, (0.5, 0.99))
        first = self._first_publish_ns
        return {
            "first_publish_seconds": None if first is None else round((first - since_ns) / 1e9, 3),
            "published": self.published,
            "skipped": self.skipped,
            "requested": self.requested,
            "lateness_p50_ms": p50,
            "lateness_p99_ms": p99,
            "capture_lag_ms": self._capture_lag_ms,
            "capture_lag_p50_ms": lag_p50,
            "capture_lag_p99_ms": lag_p99,
        }
