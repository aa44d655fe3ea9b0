"""The consumer groups of workers, movers and history sinks: who is in them, and what they have not done yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from cli.errors import Failure, Unasked, explain
from cli.output import count
from cli.topics import admin
from cronstream.settings import Installation

Answer = TypeVar("Answer")
Place = tuple[str, int]
"""A topic and its partition."""
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]


def look_at_group(
    settings: Installation, group: str, topics: Sequence[str], process: str, timeout_seconds: float
) -> dict[str, Any]:
    """Members by client id, and the backlog of each partition of the topics.

    Raises Failure when nobody is in it, Unasked when Kafka does not say, asked twice.
    """
    return asked_twice(lambda: _look(settings, group, topics, process, timeout_seconds))


def asked_twice(ask: Callable[[], Answer]) -> Answer:
    """What Kafka says, at the second asking if it must be: a client that is new to its brokers may run out of time.

    Raises Unasked when it says nothing then either.
    """
    with suppress(KafkaException):
        return ask()
    try:
        return ask()
    except KafkaException as error:
        failure = explain(error)
        raise Unasked(failure.message if failure else str(error)) from error


def _look(
    settings: Installation, group: str, topics: Sequence[str], process: str, timeout_seconds: float
) -> dict[str, Any]:
    places = [(topic, partition) for topic in topics for partition in range(settings.partitions)]
    stand = stand_of(settings, group, places, timeout_seconds)
    backlog = dict.fromkeys(range(settings.partitions), 0)
    for (_, partition), behind in stand.waiting.items():
        backlog[partition] += behind
    total = sum(backlog.values())
    if not stand.members:
        waits = f"{count(total, 'record')} of {_named(topics)} {'waits' if total == 1 else 'wait'}"
        raise Failure(f"nobody is in the group {group}: is a {process} running? {waits}")
    return {"members": stand.members, "backlog": total, "backlog_by_partition": backlog}


@dataclass(frozen=True, slots=True)
class Standing:
    """Of a group: who is in it, and by place what it has committed and how much it has not done."""

    members: list[str]
    committed: dict[Place, int]
    waiting: dict[Place, int]


def stand_of(settings: Installation, group: str, where: Sequence[Place], timeout_seconds: float) -> Standing:
    """What Kafka says of a group at these places. Raises KafkaException."""
    client = admin(settings)
    places = [TopicPartition(*place) for place in where]
    asked = {"request_timeout": timeout_seconds}
    committed_asked = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)], **asked)
    ends_asked = client.list_offsets(dict.fromkeys(places, _LATEST), **asked)
    begins_asked = client.list_offsets(dict.fromkeys(places, _EARLIEST), **asked)
    members = _members(client, group, asked)
    ends = {_place(place): future.result().offset for place, future in ends_asked.items()}
    begins = {_place(place): future.result().offset for place, future in begins_asked.items()}
    committed = _committed(committed_asked[group])
    return Standing(members, committed, waiting(begins, ends, committed))


def waiting(begins: dict[Place, int], ends: dict[Place, int], committed: dict[Place, int]) -> dict[Place, int]:
    """By topic and partition, how many records are not done; a group that never committed begins at the first."""
    return {place: max(end - max(committed.get(place, -1), begins[place]), 0) for place, end in ends.items()}


def _place(place: TopicPartition) -> Place:
    return (place.topic, place.partition)


def _named(topics: Sequence[str]) -> str:
    return topics[0] if len(topics) == 1 else f"{topics[0]} to {topics[-1]}"


def _members(client: AdminClient, group: str, asked: dict[str, float]) -> list[str]:
    try:
        described = client.describe_consumer_groups([group], **asked)[group].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return []
        raise
    return sorted(member.client_id for member in described.members)


def _committed(future: Future[Any]) -> dict[Place, int]:
    try:
        places = future.result().topic_partitions
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return {}
        raise
    return {_place(place): place.offset for place in places}
