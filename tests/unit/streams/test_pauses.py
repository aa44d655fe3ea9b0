"""What is paused while a consumer waits is read again, whatever moved meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest
from confluent_kafka import TopicPartition

from cronstream.clock import FakeClock
from cronstream.settings import AlertSettings, read_settings
from streams import alerts
from streams.alerts import Alerts
from streams.mover import Session
from streams.patience import Patience
from streams.pauses import Pauses
from tests.unit.streams.test_topics import ENVIRONMENT, SETTINGS

TOPIC = "t"


class Record:
    """The next record of a partition."""

    def __init__(self, number: int, offset: int) -> None:
        self._number, self._offset = number, offset

    def error(self) -> None: ...
    def topic(self) -> str:
        return TOPIC

    def partition(self) -> int:
        return self._number

    def offset(self) -> int:
        return self._offset

    def key(self) -> None: ...
    def value(self) -> bytes:
        return b""

    def headers(self) -> None: ...


class Member:
    """A consumer as librdkafka is: what it paused stays paused while the partition is somebody else's.

    ``moves``: what is assigned, poll by poll; the last for ever.
    """

    def __init__(self, clock: FakeClock, moves: Iterable[set[int]]) -> None:
        self.clock = clock
        self._moves: Iterator[set[int]] = iter(moves)
        self.assigned = next(self._moves)
        self.paused: set[int] = set()
        self.position = dict.fromkeys(range(4), 0)

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, number) for number in self.assigned]

    def pause(self, partitions: list[TopicPartition]) -> None:
        assert not (again := self.paused & _numbers(partitions)), again
        self.paused |= _numbers(partitions)

    def resume(self, partitions: list[TopicPartition]) -> None:
        assert not (again := _numbers(partitions) - self.paused), again
        self.paused -= _numbers(partitions)

    def seek(self, place: TopicPartition) -> None:
        self.position[place.partition] = place.offset

    def consume(self, most: int, seconds: float) -> list[Record]:
        return []

    def poll(self, seconds: float) -> Record | None:
        self.clock.advance(seconds)
        self.assigned = next(self._moves, self.assigned)
        number = min(self.assigned - self.paused, default=None)
        if number is None:
            return None
        self.position[number] += 1
        return Record(number, self.position[number] - 1)


def _numbers(partitions: list[TopicPartition]) -> set[int]:
    return {partition.partition for partition in partitions}


ALL = {0, 1, 2, 3}


@pytest.mark.parametrize(
    "moves",
    [
        [ALL],
        [ALL, set()],  # the group gave this member up, and still has when the wait is over
        [ALL, set(), ALL],
        [ALL, {0}, ALL],
        [{0}, ALL],
        [{0, 1}, set(), {2, 3}],
        [set(), ALL],
    ],
)
def test_all_that_is_assigned_after_a_wait_is_read_from_where_it_was(moves: list[set[int]]) -> None:
    clock = FakeClock()
    member = Member(clock, moves)
    patience = Patience(cast(Any, member), clock, threading.Event())
    attempts = iter([False, False, True])
    assert patience.insist("try", lambda: next(attempts))
    member.assigned = ALL  # what came back later still
    assert not member.paused
    assert set(member.position.values()) == {0}


def test_what_a_mover_loses_is_not_paused_when_it_comes_back() -> None:
    session = Session(SETTINGS, FakeClock())
    member = Member(FakeClock(), [ALL])
    session._pauses = Pauses(member)
    session._pauses.only({(TOPIC, 0), (TOPIC, 1)})
    session._left(cast(Any, member), member.assignment())
    assert not member.paused


def test_what_alerts_lose_while_they_read_nothing_is_not_paused_when_it_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alerts, "MOST_HELD", 1)
    watching = Alerts(read_settings(AlertSettings, ENVIRONMENT), FakeClock())
    member = Member(FakeClock(), [ALL])
    watching._consumer = cast(Any, member)
    watching._pauses = Pauses(member)
    watching._unstored = [cast(Any, "a letter")]
    watching._take()
    assert member.paused == ALL
    member.assigned = set()
    watching._unstored = []
    watching._take()
    assert not member.paused
