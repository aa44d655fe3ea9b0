"""Progress: what is dropped, what may be committed, and what the metadata says."""

from __future__ import annotations

import pytest

from cronstream.records import Source
from workers.progress import Position, Progress, decode_metadata, encode_metadata


def source(offset: int, part: int = 0, topic: str = "triggers") -> Source:
    return Source(topic, 3, offset, part)


def progress(**more: int) -> Progress:
    return Progress(Position(10, 100), outcomes_end=200, **more)


def test_nothing_taken_commits_where_it_began() -> None:
    assert progress().position() == Position(10, 200)


def test_the_first_unfinished_record_holds_the_offset() -> None:
    held = progress()
    held.take(10, source(1), 2)
    held.take(11, source(2), 1)
    held.finish(11)
    assert held.position() == Position(10, 200)
    held.finish(10)
    assert held.position() == Position(10, 200)
    held.finish(10)
    assert held.position() == Position(12, 200, {("triggers", 3): (2, 0)})


def test_the_watermark_describes_exactly_what_lies_below_the_offset() -> None:
    held = progress()
    held.take(10, source(1), 1)
    held.take(11, source(2), 1)
    held.finish(10)
    assert held.position().sources == {("triggers", 3): (1, 0)}


def test_a_second_emission_is_dropped_and_a_later_part_is_not() -> None:
    held = progress()
    assert held.take(10, source(5, 0), 1)
    assert not held.take(11, source(5, 0), 1)
    assert not held.take(12, source(4, 9), 1)
    assert held.take(13, source(5, 1), 1)
    assert held.take(14, source(1, 0, "retry.due"), 1)


def test_a_second_emission_across_a_takeover_is_dropped() -> None:
    first = progress()
    first.take(10, source(5), 1)
    first.finish(10)
    committed = decode_metadata(11, encode_metadata(first.position()))
    assert committed is not None
    assert not Progress(committed, outcomes_end=300).take(11, source(5), 1)


def test_a_record_without_a_source_is_always_taken() -> None:
    held = progress()
    assert held.take(10, None, 1)
    assert held.take(11, None, 1)


def test_the_bound_is_the_one_noted_when_the_record_was_taken() -> None:
    held = progress()
    held.take(10, source(1), 1)
    held.outcome_acknowledged(250)
    held.take(11, source(2), 1)
    held.outcome_acknowledged(260)
    assert held.position().outcomes_from == 200
    held.finish(10)
    assert held.position().outcomes_from == 251
    held.finish(11)
    assert held.position().outcomes_from == 261


def test_redelivered_records_keep_the_bound_of_whoever_took_them_first() -> None:
    held = progress(redelivered_below=12)
    assert held.position().outcomes_from == 100
    held.take(10, source(1), 1)
    held.finish(10)
    assert held.position() == Position(11, 100, {("triggers", 3): (1, 0)})
    held.take(11, source(2), 1)
    held.finish(11)
    assert held.position().outcomes_from == 200


def test_offsets_only_grow() -> None:
    held = progress()
    held.take(11, source(1), 1)
    with pytest.raises(ValueError, match="offset 11 comes after"):
        held.take(11, source(2), 1)


def test_no_more_items_end_than_were_taken() -> None:
    held = progress()
    held.take(10, source(1), 2)
    with pytest.raises(ValueError, match="only 2 are unfinished"):
        held.finish(10, 3)


@pytest.mark.parametrize("metadata", [None, "", "{}", "[2,5,[]]", '[1,"x",[]]', "by hand"])
def test_metadata_that_is_not_ours_says_nothing(metadata: str | None) -> None:
    assert decode_metadata(7, metadata) is None


def test_metadata_stays_under_the_brokers_limit() -> None:
    places = {(f"an-installation-with-a-rather-long-name.retry.{n}", 511): (2**60, 10**6) for n in range(12)}
    position = Position(2**60, 2**60, places)
    text = encode_metadata(position)
    assert len(text) < 4096
    assert decode_metadata(2**60, text) == position
