"""Streams begin when Kafka answers, and only on topics that are as they must be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from cronstream.settings import StreamsSettings, read_settings
from streams.topics import TopicsError, require

ENVIRONMENT = {
    "CRONSTREAM_POSTGRES": "host=127.0.0.1",
    "CRONSTREAM_KAFKA": "127.0.0.1:1",
    "CRONSTREAM_ETCD": "127.0.0.1:2",
    "CRONSTREAM_NODE": "s1",
    "CRONSTREAM_PARTITIONS": "4",
}
SETTINGS = read_settings(StreamsSettings, ENVIRONMENT)


class Admin:
    """Answers in turn: an error's code, or how many partitions each topic has."""

    def __init__(self, *answers: int | dict[str, int]) -> None:
        self.answers = list(answers)

    def list_topics(self, timeout: float) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        topics = {name: SimpleNamespace(partitions=range(count)) for name, count in answer.items()}
        return SimpleNamespace(topics=topics)


def required(*answers: int | dict[str, int]) -> dict[str, int]:
    return require(SETTINGS, cast(Any, Admin(*answers)))


ALL = {spec.name: spec.partitions for spec in SETTINGS.topics.specs(4)}


def test_a_broker_that_is_not_there_yet_is_waited_for() -> None:
    assert required(KafkaError._TRANSPORT, KafkaError._TIMED_OUT, ALL) == ALL


def test_a_broker_that_refuses_has_answered() -> None:
    with pytest.raises(KafkaException):
        required(KafkaError.TOPIC_AUTHORIZATION_FAILED, ALL)


def test_missing_and_unequal_topics_are_named() -> None:
    triggers = SETTINGS.topics.triggers
    with pytest.raises(TopicsError, match=rf"{triggers} has 3 partitions, not 4"):
        required({**ALL, triggers: 3})
    with pytest.raises(TopicsError, match=r"dead-letter does not exist"):
        required({name: count for name, count in ALL.items() if not name.endswith("dead-letter")})
