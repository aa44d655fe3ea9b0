"""What admission remembers, for how long, and how it packs it."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from cronstream.clock import MINUTE, SECOND
from streams.intset import IntSet
from streams.keys import by_stretch
from streams.window import Keys, Row, Window, key_of
from tests.unit.streams.making import NOON, run, triggers

STRETCH = (NOON >> 20, 0, 1)
WINDOW = 10 * MINUTE
LATER = WINDOW // 2 + 1
"""When this process has had for long enough what it had at the start."""


def ids(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, np.int64)


def row(offset: int, clock: int, token: int = 1, admitted: tuple[int, ...] = ()) -> Row:
    packed = (Keys.of(STRETCH, ids(*admitted)),) if admitted else ()
    return Row(offset, token, clock, clock, False, packed)


def test_keys_are_packed_by_their_distances() -> None:
    for values in ((7,), (1, 2, 3), (-5, 0, 2**40), (1, 300, 70_000, 2**33), (-(2**62), 2**62)):
        packed = Keys.of(STRETCH, ids(*values))
        assert packed.array().tolist() == list(values)
    assert Keys.of(STRETCH, ids(1, 200, 400)).width == 1


def test_a_full_record_costs_few_bytes_an_id() -> None:
    random = np.random.default_rng(1)
    spread = np.unique(random.integers(0, 10_000_000, 500))
    value = Row(12, 345, NOON, NOON, False, (Keys.of(STRETCH, spread),)).encode()
    assert len(value) / len(spread) < 5
    assert Row.decode(value).admitted[0].array().tolist() == spread.tolist()


def test_a_set_knows_what_was_added_and_forgets_what_was_discarded() -> None:
    known = IntSet()
    random = np.random.default_rng(2)
    values = random.permutation(5000).astype(np.int64)
    for part in np.split(values, 50):
        assert not known.known(part).any()
        known.add(np.sort(part))
    assert len(known) == 5000
    assert known.known(values).all()
    known.discard(np.sort(values[:2000]))
    assert not known.known(values[:2000]).any()
    assert known.known(values[2000:]).all()
    assert len(known) == 3000


def test_the_clock_rises_by_at_most_a_minute_a_record_and_never_falls() -> None:
    window = Window(WINDOW, [row(0, NOON)])
    assert window.clock_after(NOON + 10) == NOON + 10
    assert window.clock_after(NOON - MINUTE) == NOON
    assert window.clock_after(NOON + 60 * MINUTE) == NOON + MINUTE


def test_a_row_leaves_when_the_clock_is_past_the_window() -> None:
    window = Window(WINDOW, [row(0, NOON, admitted=(1, 2)), row(1, NOON + 1, admitted=(3,))])
    assert window.add(row(2, NOON + WINDOW), LATER) == []
    assert window.known(STRETCH, ids(1, 2, 3)).all()
    # Offset 0 was the first with the newest token: its ids leave, its row stays.
    assert window.add(row(3, NOON + WINDOW + 2), LATER) == [key_of((0, 1))]
    assert not window.known(STRETCH, ids(1, 2, 3)).any()
    assert window.newest_token_before(9) == 1
    assert window.add(row(4, NOON + WINDOW + 3, token=2), LATER) == [key_of((0, 0))]
    assert [window.newest_token_before(offset) for offset in (2, 3, 4, 5)] == [-1, 1, 1, 2]


def test_a_row_is_replaced_when_its_offset_holds_another_record() -> None:
    window = Window(WINDOW, [row(0, NOON, admitted=(1,)), row(1, NOON, admitted=(2,))])
    assert window.add(row(0, NOON, admitted=(1,)), LATER) == []
    assert window.add(row(0, NOON + 1, admitted=(3,)), LATER) == []
    assert window.known(STRETCH, ids(1, 2, 3)).tolist() == [False, True, True]
    assert window.add(row(2, NOON + WINDOW + 2), LATER) == [key_of((0, 1))]
    assert window.runs == 0
    window.add(row(0, NOON + WINDOW + 3, admitted=(4,)), LATER)
    assert window.known(STRETCH, ids(4)).all()


def test_a_window_loaded_from_its_rows_is_the_same_window() -> None:
    table: dict[bytes, Row] = {}
    window = Window(WINDOW)
    for offset in range(40):
        new = row(offset, NOON + offset * MINUTE, token=offset // 15, admitted=(offset, 1000 + offset))
        table[new.key] = new
        for key in window.add(new, offset * MINUTE):
            del table[key]
        loaded = Window(WINDOW, table.values())
        assert len(loaded) == len(window)
        # The row that is kept for its token has its ids again, for a while.
        assert loaded.runs - window.runs in (0, 2)
        assert [loaded.newest_token_before(o) for o in range(50)] == [window.newest_token_before(o) for o in range(50)]
    assert len(table) <= 13


def test_rows_that_outlived_a_crash_leave_once_this_process_has_had_them_for_long_enough() -> None:
    stale = [row(0, NOON), row(1, NOON, admitted=(1,)), row(2, NOON + WINDOW + 1)]
    window = Window(WINDOW, stale, now_us=MINUTE)
    assert window.add(row(3, NOON + WINDOW + 1), MINUTE + WINDOW // 2) == []
    assert window.known(STRETCH, ids(1)).all()
    assert window.add(row(4, NOON + WINDOW + 1), MINUTE + LATER) == [key_of((0, 1))]


def test_a_clock_that_jumps_over_an_outage_empties_no_window() -> None:
    window = Window(WINDOW, [row(0, NOON, admitted=(1,))])
    for offset in range(1, 200):
        assert window.add(row(offset, NOON + offset * MINUTE, admitted=(1 + offset,)), offset) == []
    assert window.known(STRETCH, ids(*range(1, 201))).all()
    left = [len(window.add(row(200 + more, NOON + 200 * MINUTE), 200 + LATER)) for more in range(8)]
    assert left == [32, 32, 32, 32, 32, 29, 0, 0], "nothing waits for minutes of rows that leave together"
    assert len(window) == 208 - 189


def test_only_the_same_record_has_the_stored_decision() -> None:
    window = Window(WINDOW, [row(3, NOON)])
    assert window.row((0, 3), 1, NOON) is not None
    assert window.row((0, 3), 1, NOON + 1) is None
    assert window.row((0, 3), 2, NOON) is None
    assert window.row((0, 4), 1, NOON) is None


@pytest.mark.parametrize("spread", [False, True], ids=["due together", "each at its own time"])
def test_a_trigger_is_remembered_in_few_bytes(spread: bool) -> None:
    """A minute of one partition of twelve at 8,300 triggers/s, of ten million jobs, in records of about 115."""
    random = np.random.default_rng(3)
    rows = []
    for number in range(360):
        jobs = np.unique(random.integers(0, 10_000_000, 115))
        second = NOON + number // 6 * SECOND
        times = second + (random.integers(0, SECOND, len(jobs)) if spread else np.zeros(len(jobs), np.int64))
        batch = triggers([run(int(job), int(at)) for job, at in zip(jobs, times, strict=True)])
        admitted = tuple(Keys.of(stretch, keys) for stretch, keys, _ in by_stretch(batch, np.arange(len(jobs))))
        rows.append(Row(number, 1, NOON + number, NOON + number, False, admitted))
    tracemalloc.start()
    window = Window(WINDOW, rows)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    in_memory = (held + sum(len(row.encode()) for row in rows)) / window.runs
    in_the_table = sum(len(row.key) + len(row.encode()) for row in rows) / window.runs
    print(f"bytes a trigger: {in_memory:.1f} in memory, {in_the_table:.1f} in the table")
    assert in_memory < (30 if spread else 24)
