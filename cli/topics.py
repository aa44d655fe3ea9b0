"""Making an installation's topics. A topic that is there is checked, never changed."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cli.errors import Failure
from cronstream.settings import Installation
from cronstream.topics import TopicSpec

_ANSWER_SECONDS = 30.0
_LOOK_SECONDS = 10.0


def admin(settings: Installation) -> AdminClient:
    """A client that keeps its complaints to itself: callers raise them."""
    return AdminClient({"bootstrap.servers": settings.kafka, "socket.timeout.ms": 10_000}, logger=quiet_logger())


def quiet_logger() -> logging.Logger:
    """Takes a client's complaints and says nothing."""
    quiet = logging.getLogger("cli.kafka")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    return quiet


def partition_counts(client: AdminClient, timeout_seconds: float = _LOOK_SECONDS) -> dict[str, int]:
    """Every topic of the broker with its partition count. Raises KafkaException."""
    return {name: len(topic.partitions) for name, topic in client.list_topics(timeout=timeout_seconds).topics.items()}


def missing(specs: Sequence[TopicSpec], existing: Mapping[str, int]) -> list[TopicSpec]:
    """What is still to make. Raises Failure where a topic has another partition count."""
    for spec in specs:
        count = existing.get(spec.name, spec.partitions)
        if count != spec.partitions:
            raise Failure(
                f"topic {spec.name} has {count} partitions, not {spec.partitions}: the count is fixed when an "
                "installation is made, so set CRONSTREAM_PARTITIONS as it was then"
            )
    return [spec for spec in specs if spec.name not in existing]


def make_topics(settings: Installation) -> list[str]:
    """Create the topics that are missing; their names. Raises Failure or KafkaException."""
    client = admin(settings)
    specs = settings.topics.specs(settings.partitions)
    todo = missing(specs, partition_counts(client))
    if not todo:
        return []
    # Minus one: the broker's default replication factor.
    wanted = [NewTopic(s.name, num_partitions=s.partitions, replication_factor=-1, config=s.config) for s in todo]
    for future in client.create_topics(wanted, operation_timeout=_ANSWER_SECONDS).values():
        try:
            future.result(_ANSWER_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            # Another setup was faster; whether it made them alike is checked below.
    missing(specs, partition_counts(client))
    return [spec.name for spec in todo]
