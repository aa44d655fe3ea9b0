"""The consumer groups of streams, workers, movers and the others: who is in them, and what they have not done yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from warnings import catch_warnings

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from cli.errors import Failure, Unasked, explain
from cli.first_records import Firsts, Place, first_records, reading_as
from cli.output import count, span
from cli.topics import admin
from cronstream.clock import SystemClock
from cronstream.settings import Installation

Answer = TypeVar("Answer")
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]


def look_at_group(
    settings: Installation, group: str, topics: Sequence[str], process: str, timeout_seconds: float
) -> dict[str, Any]:
    """Members by client id, and the backlog of the topics together.

    Raises Failure when nobody is in it, Unasked when Kafka does not say, asked twice.
    """
    stand = stand_at(settings, group, topics, timeout_seconds)
    backlog = stand.backlog()
    if not stand.members:
        waits = what_waits(_named(topics), backlog)
        raise Failure(f"nobody is in the group {group}: is a {process} running? {waits}")
    return {"members": stand.members, **backlog}


def what_waits(topic: str, backlog: dict[str, Any]) -> str:
    """``12 records of here.triggers wait, the oldest for 3s``."""
    number, age = backlog["backlog"], backlog["oldest_age"]
    oldest = "" if age is None else f", the oldest for {span(age)}"
    return f"{count(number, 'record')} of {topic} {'waits' if number == 1 else 'wait'}{oldest}"


def stand_at(settings: Installation, group: str, topics: Sequence[str], timeout_seconds: float) -> Standing:
    """How a group stands in all partitions of the topics. Raises Unasked when Kafka does not say, asked twice."""
    places = [(topic, partition) for topic in topics for partition in range(settings.partitions)]
    return asked_twice(lambda: stand_of(settings, group, places, timeout_seconds))


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


@dataclass(frozen=True, slots=True)
class Standing:
    """Of a group: who is in it; by place what it has committed, how much it has not done, and for how long."""

    members: list[str]
    committed: dict[Place, int]
    waiting: dict[Place, int]
    ages: dict[Place, timedelta]
    """How old the first record of what is not done is; no entry where that was not to be had."""

    def backlog(self, topic: str | None = None) -> dict[str, Any]:
        """What is not done, of one topic or of all: how much, for how long the oldest record, and where."""
        chosen = {place: number for place, number in self.waiting.items() if topic in (None, place[0])}
        by_partition = dict.fromkeys(sorted({partition for _, partition in chosen}), 0)
        for (_, partition), number in chosen.items():
            by_partition[partition] += number
        ages = [self.ages[place] for place, number in chosen.items() if number and place in self.ages]
        oldest_age = max(ages, default=None)
        return {"backlog": sum(chosen.values()), "oldest_age": oldest_age, "backlog_by_partition": by_partition}


def stand_of(settings: Installation, group: str, where: Sequence[Place], timeout_seconds: float) -> Standing:
    """What Kafka says of a group at these places. Raises KafkaException."""
    client = admin(settings)
    places = [TopicPartition(*place) for place in where]
    ends_asked = client.list_offsets(dict.fromkeys(places, _LATEST), request_timeout=timeout_seconds)
    begins_asked = client.list_offsets(dict.fromkeys(places, _EARLIEST), request_timeout=timeout_seconds)
    members = _members(client, group, timeout_seconds)
    with closing(reading_as(settings, group)) as consumer:
        committed = {_place(place): place.offset for place in consumer.committed(places, timeout=timeout_seconds)}
        ends = {_place(place): future.result().offset for place, future in ends_asked.items()}
        firsts = {_place(place): future.result().offset for place, future in begins_asked.items()}
        begins = beginnings(firsts, committed)
        open_places = {place: begin for place, begin in begins.items() if begin < ends[place]}
        found = first_records(consumer, open_places, timeout_seconds)
    ages = ages_of(found, SystemClock().wall_us() // 1000)
    return Standing(members, committed, waiting(begins, ends, found), ages)


def beginnings(firsts: Mapping[Place, int], committed: Mapping[Place, int]) -> dict[Place, int]:
    """By place, the offset that is next; a group that never committed begins at the first that there is."""
    return {place: max(committed.get(place, -1), first) for place, first in firsts.items()}


def waiting(begins: Mapping[Place, int], ends: Mapping[Place, int], found: Firsts) -> dict[Place, int]:
    """By place, how many offsets are not done: at most so many records, and none where only markers are left."""
    return {
        place: 0 if found.none_before.get(place, -1) >= end else max(end - begins[place], 0)
        for place, end in ends.items()
    }


def ages_of(found: Firsts, now_ms: int) -> dict[Place, timedelta]:
    """In whole seconds; a record of a clock that is ahead is as old as nothing."""
    return {place: timedelta(seconds=max(now_ms - at, 0) // 1000) for place, at in found.written_ms.items()}


def _place(place: TopicPartition) -> Place:
    return (place.topic, place.partition)


def _named(topics: Sequence[str]) -> str:
    return topics[0] if len(topics) == 1 else f"{topics[0]} to {topics[-1]}"


def _members(client: AdminClient, group: str, timeout_seconds: float) -> list[str]:
    """None of a group that is not there."""
    # The calls that replace this one, and those for a group's offsets, end the process by librdkafka's assertion when
    # their time runs out (its issue 4605): on an overloaded machine, of all.
    with catch_warnings(action="ignore", category=DeprecationWarning):
        found = client.list_groups(group, timeout=timeout_seconds)
    return sorted(str(member.client_id) for one in found for member in one.members)
