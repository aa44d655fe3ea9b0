"""The first record from a place on: since when a backlog waits, and whether there is a record in it at all.

The marker that ends a transaction takes an offset and is no record. What was published in transactions and is all
done ends with one that nobody commits, so that offsets alone show one behind, in every partition, for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from cli.topics import quiet_logger
from cronstream.clock import SystemClock
from cronstream.settings import Installation

Place = tuple[str, int]
"""A topic and its partition."""


@dataclass(frozen=True, slots=True)
class Firsts:
    """By place: when its first record was written, or the offset up to which there is none. Neither: not heard of."""

    written_ms: dict[Place, int] = field(default_factory=dict)
    none_before: dict[Place, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.written_ms) + len(self.none_before)


def reading_as(settings: Installation, group: str) -> Consumer:
    """It reads by the group's name, which it neither joins nor commits for. To be closed."""
    return Consumer(
        {
            "bootstrap.servers": settings.kafka,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",  # retention was faster
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            # One record a place is wanted, soon.
            "fetch.message.max.bytes": 64 * 1024,
            "queued.max.messages.kbytes": 1024,
            "fetch.wait.max.ms": 50,
        },
        logger=quiet_logger(),
    )


def first_records(consumer: Consumer, begins: Mapping[Place, int], timeout_seconds: float) -> Firsts:
    """What is first from these offsets on, as far as it is heard in time. Raises KafkaException."""
    firsts = Firsts()
    if not begins:
        return firsts
    clock = SystemClock()
    until_ns = clock.boot_ns() + int(timeout_seconds * 1e9)
    consumer.assign([TopicPartition(*place, offset) for place, offset in begins.items()])
    while len(firsts) < len(begins) and (left_ns := until_ns - clock.boot_ns()) > 0:
        message: Any = consumer.poll(left_ns / 1e9)
        if message is not None and _heard(firsts, message):
            consumer.pause([TopicPartition(message.topic(), message.partition())])
    return firsts


def _heard(firsts: Firsts, message: Any) -> bool:
    """Whether the message says something new of its place. Raises KafkaException."""
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    place = (message.topic(), message.partition())
    if place in firsts.written_ms or place in firsts.none_before:
        return False
    if error is None:
        firsts.written_ms[place] = message.timestamp()[1]
    else:
        firsts.none_before[place] = message.offset()
    return True
