"""Taking a partition over: what was committed, and what its outcomes say since.

Blocking; called in a thread of its own with a client of its own, so that the
poll loop goes on.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as Code

from cronstream.records import Batch, PoisonRecord
from cronstream.settings import WorkerSettings
from workers.donelog import DoneLog
from workers.progress import Position, decode_metadata

logger = logging.getLogger(__name__)
LIBRDKAFKA = logging.getLogger("workers.librdkafka")

TIMEOUT_SECONDS = 30.0
STALL_SECONDS = 60.0


class TakeoverFailed(RuntimeError):
    """The done-log cannot be read: without it nothing may run."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """All that is known when a partition begins."""

    partition: int
    position: Position
    redelivered_below: int
    """Attempts below it may have been taken by another worker."""
    outcomes_end: int
    log: DoneLog


@dataclass(frozen=True, slots=True)
class Start:
    """Where a partition begins, before its outcomes have been read."""

    partition: int
    offset: int
    end: int
    """The end of attempts when the partition was assigned."""
    known: Position | None
    """What was committed with our metadata. None: nothing is known of the outcomes, so all are read."""


def start_of(committed: TopicPartition, low: int, high: int) -> Start:
    """Where to begin, given what was committed and the offsets there are."""
    number, offset = committed.partition, committed.offset
    if offset > high:
        logger.warning(
            "The committed offset is beyond the end, so the topic was made anew",
            extra={"action": "begin_again", "partition": number},
        )
    if not 0 <= offset <= high:
        return Start(number, low, high, None)
    if offset < low:
        logger.warning(
            "Records were deleted before they were run",
            extra={"action": "gap", "partition": number, "from": offset, "to": low},
        )
    return Start(number, max(offset, low), high, decode_metadata(offset, committed.metadata))


class TakeoverReader:
    """Reads done-logs."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._stop = threading.Event()

    def stop(self) -> None:
        """Give up whatever is being read."""
        self._stop.set()

    def read(self, start: Start) -> Takeover:
        """What is known of one partition. Raises TakeoverFailed."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._settings.kafka,
                "group.id": f"{self._settings.installation}-workers-donelog",
                "client.id": f"{self._settings.node}-donelog",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "logger": LIBRDKAFKA,
            }
        )
        try:
            return self._read(consumer, start)
        except KafkaException as error:
            raise TakeoverFailed(f"partition {start.partition}: {error}") from error
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, start: Start) -> Takeover:
        topic = self._settings.topics.outcomes
        low, end = consumer.get_watermark_offsets(TopicPartition(topic, start.partition), timeout=TIMEOUT_SECONDS)
        known = start.known or Position(start.offset, low)
        position = Position(start.offset, max(known.outcomes_from, low), known.sources)
        log = DoneLog()
        if start.offset < start.end and position.outcomes_from < end:
            consumer.assign([TopicPartition(topic, start.partition, position.outcomes_from)])
            self._follow(consumer, end, log)
        return Takeover(start.partition, position, start.end, end, log)

    def _follow(self, consumer: Consumer, end: int, log: DoneLog) -> None:
        silent = 0.0
        while not self._stop.is_set():
            message = consumer.poll(0.5)
            if message is None:
                silent += 0.5
                if silent >= STALL_SECONDS:
                    raise TakeoverFailed(f"no outcomes for {STALL_SECONDS:g} s, below offset {end}")
                continue
            silent = 0.0
            offset = message.offset()
            error = message.error()
            if error is None:
                try:
                    log.note(Batch.decode(message.value()))
                except PoisonRecord as problem:
                    logger.warning(
                        "An outcomes record cannot be read: %s", problem, extra={"action": "skip", "offset": offset}
                    )
                if offset is not None and offset + 1 >= end:
                    return
            elif error.code() == Code._PARTITION_EOF:
                if offset is not None and offset >= end:
                    return
            else:
                raise KafkaException(error)
        raise TakeoverFailed("stopped")
