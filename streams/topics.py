"""The topics must be there, and be alike, before a stream begins."""

from __future__ import annotations

import logging

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cronstream.settings import StreamsSettings

CHANGELOG = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.2",
    "delete.retention.ms": "3600000",
}


class TopicsError(RuntimeError):
    """A topic is missing or has another number of partitions; the message says which."""


def prepare(settings: StreamsSettings, changelogs: list[str]) -> None:
    """Create missing changelog topics; refuse to start on missing or unequal work topics."""
    admin = AdminClient({"bootstrap.servers": settings.kafka}, logger=logging.getLogger("streams.librdkafka"))
    there = {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=10).topics.items()}
    topics = settings.topics
    for name in (topics.triggers, topics.attempts, topics.outcomes):
        if there.get(name) != settings.partitions:
            raise TopicsError(f"topic {name} has {there.get(name, 'no')} partitions, not {settings.partitions}")
    if topics.dead_letter not in there:
        raise TopicsError(f"topic {topics.dead_letter} does not exist")
    missing = [
        NewTopic(name, num_partitions=settings.partitions, config=CHANGELOG) for name in changelogs if name not in there
    ]
    for future in admin.create_topics(missing).values() if missing else ():
        try:
            future.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
