"""What every process that consumes by a group has in common: the clients' settings, what came, and commits.

Offsets are committed by hand, after what follows from a record is safe; only committed data is read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from cronstream.dead_letters import Record
from cronstream.settings import ConsumerSettings

log = logging.getLogger(__name__)

COOPERATIVE: Mapping[str, Any] = {"partition.assignment.strategy": "cooperative-sticky"}
"""A partition that stays is not interrupted when another moves."""


def consumer_of(settings: ConsumerSettings, role: str, logger: logging.Logger, more: Mapping[str, Any]) -> Consumer:
    """A member of the group ``<installation>-<role>`` under this node's name."""
    session_ms = round(settings.session_timeout_seconds * 1000)
    return Consumer(
        {
            "bootstrap.servers": settings.kafka,
            "group.id": f"{settings.installation}-{role}",
            "client.id": settings.node,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": session_ms // 6,
            "fetch.wait.max.ms": 50,
            "logger": logger.getChild("librdkafka"),
            **more,
        }
    )


def say_assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
    """For ``subscribe``: `make up` waits for this line."""
    log.info("Partitions came", extra={"action": "assigned", "partitions": len(partitions)})


def records_of(messages: Iterable[Message]) -> Iterator[Record]:
    """What came; what Kafka says instead is logged."""
    for message in messages:
        error = message.error()
        if error is None:
            yield record_of(message)
        else:
            log.warning("Kafka says: %s", error.str(), extra={"action": "consume", "code": error.name()})


def record_of(message: Any) -> Record:
    """A message that is no error, as a record."""
    headers = [(name, value or b"") for name, value in message.headers() or []]
    return Record(message.topic(), message.partition(), message.offset(), message.key(), message.value(), headers)


def commit(consumer: Consumer, topic: str, done: Mapping[int, int], otherwise: str) -> bool:
    """By partition, the offset to go on from. False, with ``otherwise`` in the log, if Kafka does not take it."""
    if not done:  # which the client calls an error
        return True
    offsets = [TopicPartition(topic, partition, offset) for partition, offset in done.items()]
    try:
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        log.warning("Offsets not committed, %s: %s", otherwise, error, extra={"action": "commit"})
        return False
    return True


def behind(records: Iterable[Record]) -> dict[int, int]:
    """Where to go on when these records, in their order, are done."""
    return {record.partition: record.offset + 1 for record in records}
