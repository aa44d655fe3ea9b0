"""Ends a process that stands still, so that whoever supervises it starts it anew.

Faust and aiokafka have ways to hang that no exception tells of: a recovery that never
ends, a consumer that does not come back after a broker's restart. A lane that failed is
told at once: its table may be beyond repair in this process, and another can take the partition.
"""

from __future__ import annotations

import logging

from cronstream import pulse
from cronstream.clock import Clock
from streams.app import StreamsApp

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
STANDSTILL_SECONDS = 60.0


class Standstill(RuntimeError):
    """No progress although there is work; the text says where."""


class Watchdog:
    """Remembers when each sign of life changed last."""

    def __init__(self, app: StreamsApp, clock: Clock, standstill_seconds: float = STANDSTILL_SECONDS) -> None:
        self._app = app
        self._clock = clock
        self._limit_ns = round(standstill_seconds * 1e9)
        self._seen: dict[str, tuple[object, int]] = {}

    async def run(self) -> None:
        """Look until something stands still; then raise Standstill."""
        pulse.watch("the event loop")
        while True:
            await self._clock.asleep(LOOK_SECONDS)
            pulse.beat()
            self.look()

    def look(self) -> None:
        """Raises Standstill if a sign of life has been missing for too long."""
        now = self._clock.boot_ns()
        lanes = self._app.lanes
        committed = self._app.committed()
        signs: dict[str, object | None] = {
            # None: all is well; anything else must change within the limit.
            "the consumer group does not answer": None if self._app.membership.trusted() else "silent",
            "recovery does not go on": None if lanes else self._app.recovered_rows,
        }
        for tp, lane in lanes.items():
            if lane.failure is not None:
                raise Standstill(f"{tp.topic}[{tp.partition}] failed: {lane.failure!r}")
            signs[f"{tp.topic}[{tp.partition}] is not worked on"] = lane.ended if lane.busy else None
            pending = (committed.get(tp) or 0) < lane.done.get(tp.topic, 0)
            signs[f"{tp.topic}[{tp.partition}] is not committed"] = committed.get(tp, -1) if pending else None
        for tp, (position, end) in self._app.positions().items():
            # Fetched ahead of its lane, which is slow and goes on: nothing stands still.
            went_on = (position, lanes[tp].ended)
            signs[f"{tp.topic}[{tp.partition}] is not fetched"] = went_on if position < end else None
        self._seen = {
            sign: self._seen[sign] if self._seen.get(sign, (None,))[0] == value else (value, now)
            for sign, value in signs.items()
            if value is not None
        }
        for sign, (_, since) in self._seen.items():
            if now - since > self._limit_ns:
                raise Standstill(f"{sign} for {(now - since) / 1e9:.0f} s")
