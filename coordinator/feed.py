"""The change feed: edits, requests and heartbeats, as Debezium writes them to the changes topic.

It starts at the end of the topic. Whatever was committed before stands in
``job_changes`` until it is planned (a request in ``open_requests`` until it is done), and the
reader takes up all that is open when a term begins; so no offset need be kept, and none can be lost.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, TopicPartition

from coordinator.trust import TermOver
from cronstream.changes import Changes, Heartbeat, Requested, decode
from cronstream.records import PoisonRecord
from cronstream.settings import CoordinatorSettings

log = logging.getLogger(__name__)

_TIMEOUT = 5.0


class Feed:
    """Tells of edits, requests and heartbeats, in commit order, from a thread of its own."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        stop: threading.Event,
        *,
        changed: Callable[[Changes], None],
        requested: Callable[[int, str], None],
        beat: Callable[[int], None],
        end_term: Callable[[str], None],
    ) -> None:
        """Called by the feed's thread: ``changed(changes)``, ``requested(number, kind)``, ``beat(at_us)``."""
        self._topic = settings.topics.changes
        self._stop = stop
        self._changed = changed
        self._requested = requested
        self._beat = beat
        self._end_term = end_term
        self._consumer = Consumer(
            {
                "bootstrap.servers": settings.kafka,
                "group.id": f"{settings.installation}-coordinator-feed",
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "fetch.wait.max.ms": 20,
                "logger": logging.getLogger("coordinator.librdkafka"),
            }
        )
        self._unreadable = 0
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        """Stand at the end of the topic, then begin to listen. Raises TermOver."""
        try:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=_TIMEOUT)
            self._consumer.assign([TopicPartition(self._topic, 0, end)])
        except KafkaException as error:
            raise TermOver(f"{self._topic} cannot be read: {error.args[0].str()}") from None
        self._thread.start()

    def close(self) -> None:
        """After the stop event was set."""
        if self._thread.is_alive():
            self._thread.join(2)
        self._consumer.close()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                # ``consume`` waits its timeout out unless the batch is full: wait for one, take the rest.
                first = self._consumer.poll(0.1)
                for message in [] if first is None else [first, *self._consumer.consume(500, timeout=0)]:
                    error = message.error()
                    if error is None:
                        self._read(message.value())
                    else:
                        log.warning("The change feed is disturbed: %s", error.str())
        except Exception:
            log.exception("The change feed failed")
            self._end_term("the change feed failed")

    def _read(self, value: bytes | None) -> None:
        try:
            event = decode(value)
        except PoisonRecord as error:
            self._unreadable += 1
            if self._unreadable.bit_count() == 1:  # the 1st, 2nd, 4th, 8th: a flood of them does not fill the log
                says = "%d records of %s could not be read; the audit will find what they said. The last one: %s"
                log.error(says, self._unreadable, self._topic, error)
            return
        if isinstance(event, Changes):
            self._changed(event)
        elif isinstance(event, Requested):
            self._requested(event.number, event.kind)
        elif isinstance(event, Heartbeat):
            self._beat(event.committed_us)
