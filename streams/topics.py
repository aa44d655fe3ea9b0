"""The topics must be there, and be alike, before a stream begins."""

from __future__ import annotations

import logging

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cronstream.settings import Installation
from cronstream.topics import RETRY_TIERS

log = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
AWAY = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE})
"""What says that nobody answers (yet); anything else is an answer."""
CHANGELOG = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.2",
    "delete.retention.ms": "3600000",
}


class TopicsError(RuntimeError):
    """A topic is missing or has another number of partitions; the message says which."""


def prepare(settings: Installation, changelogs: list[str]) -> None:
    """Create missing changelog topics; refuse to start on missing or unequal work topics."""
    admin = _admin(settings)
    there = require(settings, admin)
    missing = [
        NewTopic(name, num_partitions=settings.partitions, config=CHANGELOG) for name in changelogs if name not in there
    ]
    for future in admin.create_topics(missing).values() if missing else ():
        try:
            future.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def require(settings: Installation, admin: AdminClient | None = None) -> dict[str, int]:
    """The topics there are, with their partitions. Raises TopicsError on missing or unequal work topics."""
    admin = admin or _admin(settings)
    there = _listed(admin)
    topics = settings.topics
    retries = (topics.retry_due, *map(topics.retry, RETRY_TIERS))
    for name in (topics.triggers, topics.attempts, topics.outcomes, *retries):
        if there.get(name) != settings.partitions:
            raise TopicsError(f"topic {name} has {there.get(name, 'no')} partitions, not {settings.partitions}")
    if topics.dead_letter not in there:
        raise TopicsError(f"topic {topics.dead_letter} does not exist")
    return there


def _listed(admin: AdminClient) -> dict[str, int]:
    """Asked until Kafka answers, as processes start in any order."""
    while True:
        try:
            topics = admin.list_topics(timeout=ANSWER_SECONDS).topics
            return {name: len(topic.partitions) for name, topic in topics.items()}
        except KafkaException as error:
            if error.args[0].code() not in AWAY:
                raise
            log.warning("Kafka does not answer, waiting: %s", error.args[0].str(), extra={"action": "wait"})


def _admin(settings: Installation) -> AdminClient:
    return AdminClient({"bootstrap.servers": settings.kafka}, logger=logging.getLogger("streams.librdkafka"))
