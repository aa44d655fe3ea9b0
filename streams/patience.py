"""For a consumer whose next step depends on something that is away: try until it works, and stay in the group."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition

from cronstream import pulse
from cronstream.clock import Clock
from streams.consuming import record_of
from streams.pauses import Pauses, places_of

log = logging.getLogger(__name__)

FIRST_WAIT_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 5.0


class Patience:
    """One consumer's. Not for threads."""

    def __init__(self, consumer: Consumer, clock: Clock, stop: threading.Event) -> None:
        self._consumer = consumer
        self._clock = clock
        self._stop = stop
        self.pauses = Pauses(consumer)
        """For its owner's own; none of them are left after a wait."""

    def insist(self, action: str, attempt: Callable[[], bool]) -> bool:
        """Try until it works, in the group all the while; False if told to stop before."""
        wait = FIRST_WAIT_SECONDS
        while not attempt():
            if self._stop.is_set():
                return False
            self._hold(wait)
            wait = min(wait * 2, LONGEST_WAIT_SECONDS)
            log.info("Trying again", extra={"action": action})
        return True

    def _hold(self, seconds: float) -> None:
        """Stay in the group without taking anything."""
        deadline = self._clock.boot_ns() + round(seconds * 1e9)
        while self._clock.boot_ns() < deadline and not self._stop.is_set():
            pulse.beat()
            self.pauses.only(places_of(self._consumer.assignment()))
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                # Of a partition that was assigned just now: taken later.
                early = record_of(message)
                self._consumer.seek(TopicPartition(early.topic, early.partition, early.offset))
        self.pauses.only(())
