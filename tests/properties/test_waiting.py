"""Commands wait by key: each key's are answered in their order, none is lost, and a crash goes on at the oldest."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cronstream.dead_letters import Record
from streams.waiting import Line, Waiting, line_of

KEYS = [None, b"a", b"b", b"c"]


def make(partition: int, offset: int, key: bytes | None) -> Record:
    return Record("commands", partition, offset, key, b"{}", [])


def sort(records: list[Record], held: set[Any], done: list[Record]) -> list[Record]:
    """As the database: what is of a held key waits, and what is behind it; the rest is done."""
    waits = [record for record in records if record.key in held]
    done += [record for record in records if record not in waits]
    return waits


@given(data=st.data())
def test_every_key_keeps_its_order_and_a_crash_goes_on_at_the_oldest(data: st.DataObject) -> None:
    waiting = Waiting(most=3)
    sent: list[Record] = []
    done: list[Record] = []
    for _ in range(data.draw(st.integers(1, 12))):
        held = data.draw(st.sets(st.sampled_from(KEYS)))
        coming = [
            make(partition, sum(one.partition == partition for one in sent) + index, key)
            for partition in (0, 1)
            for index, key in enumerate(data.draw(st.lists(st.sampled_from(KEYS), max_size=3)))
        ]
        sent += coming
        waiting.wait(sort(waiting.came(coming), held, done))
        if line := waiting.first(data.draw(st.integers(1, 3))):
            waiting.tried(line, sort(line, held, done))
        for partition, offset in waiting.done((0, 1)).items():
            open_ones = [one.offset for one in sent if one.partition == partition and one not in done]
            assert offset == min(open_ones, default=sum(one.partition == partition for one in sent))
    while line := waiting.first(2):
        waiting.tried(line, sort(line, set(), done))
    assert len(done) == len(sent)
    by_line: dict[Line, list[int]] = {}
    for record in done:
        by_line.setdefault(line_of(record), []).append(record.offset)
    assert all(offsets == sorted(offsets) for offsets in by_line.values())


def test_one_that_waits_lets_the_other_lines_be_tried_first() -> None:
    waiting = Waiting(most=2)
    a, b = make(0, 0, b"a"), make(0, 1, b"b")
    waiting.wait(waiting.came([a, b]))
    assert waiting.first(9) == [a]
    waiting.tried([a], [a])
    assert waiting.first(9) == [b]
    assert waiting.full() == {0}


def test_a_partition_that_left_is_forgotten() -> None:
    waiting = Waiting(most=1)
    waiting.wait(waiting.came([make(0, 7, b"a"), make(1, 9, b"b")]))
    waiting.forget([0])
    assert (len(waiting), waiting.done((0, 1)), waiting.full()) == (1, {1: 9}, {1})
