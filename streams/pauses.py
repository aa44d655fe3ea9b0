"""Which partitions a consumer has paused: each once, and none that has left it.

librdkafka keeps a partition paused when it is lost, and paused still when it comes back, however long after: who
then resumes only what is assigned at the moment leaves it paused for good, in a group in which all seems well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from confluent_kafka import TopicPartition


class Pausing(Protocol):
    """What is asked of a consumer."""

    def pause(self, partitions: list[TopicPartition]) -> None: ...
    def resume(self, partitions: list[TopicPartition]) -> None: ...


class Pauses:
    """One consumer's, and the only one that pauses. Not for threads."""

    def __init__(self, consumer: Pausing) -> None:
        self._consumer = consumer
        self._paused: set[tuple[str, int]] = set()

    def only(self, places: Iterable[tuple[str, int]]) -> None:
        """Pause these topics' partitions and resume all others, those too that are somebody else's by now."""
        wanted = set(places)
        for change, those in (
            (self._consumer.pause, wanted - self._paused),
            (self._consumer.resume, self._paused - wanted),
        ):
            if those:
                change([TopicPartition(*place) for place in those])
        self._paused = wanted


def places_of(partitions: Iterable[TopicPartition]) -> set[tuple[str, int]]:
    """Their topics and numbers."""
    return {(partition.topic, partition.partition) for partition in partitions}
