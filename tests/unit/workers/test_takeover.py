"""Where a partition begins."""

from __future__ import annotations

from confluent_kafka import OFFSET_INVALID, TopicPartition

from workers.progress import Position, encode_metadata
from workers.takeover import Start, start_of


def committed(offset: int, metadata: str = "") -> TopicPartition:
    return TopicPartition("attempts", 2, offset, metadata)


def test_nothing_committed_begins_with_the_oldest_record() -> None:
    assert start_of(committed(OFFSET_INVALID), 5, 9) == Start(2, 5, 9, None)


def test_what_was_committed_is_known() -> None:
    position = Position(7, 70, {("triggers", 2): (3, 0)})
    assert start_of(committed(7, encode_metadata(position)), 5, 9) == Start(2, 7, 9, position)


def test_an_offset_set_by_hand_says_nothing_of_outcomes() -> None:
    assert start_of(committed(7, ""), 5, 9) == Start(2, 7, 9, None)


def test_deleted_records_are_passed_over() -> None:
    assert start_of(committed(3, encode_metadata(Position(3, 30))), 5, 9).offset == 5


def test_a_topic_made_anew_begins_anew() -> None:
    assert start_of(committed(30, encode_metadata(Position(30, 30))), 0, 9) == Start(2, 0, 9, None)
