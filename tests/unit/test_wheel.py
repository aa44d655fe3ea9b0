"""The wheel's contract, one sentence a test."""

from __future__ import annotations

import numpy as np
import pytest

from coordinator.wheel import NEVER, Wheel

SECOND = 1_000_000
NOW = 1_790_000_000 * SECOND


def test_the_worked_example_of_the_module_text() -> None:
    wheel = Wheel(0)
    wheel.arm(7, 50_000)
    wheel.arm(8, 2 * SECOND)
    wheel.arm(9, 60 * SECOND)
    assert wheel.pop_due(40_000).tolist() == []
    assert wheel.pop_due(50_000).tolist() == [7]
    wheel.arm(9, 61 * SECOND)
    wheel.cancel(8)
    assert wheel.next_at() == 15 << 17
    assert wheel.pop_due(58_800_000).tolist() == []
    assert wheel.next_at() == 465 << 17
    assert wheel.pop_due(61 * SECOND).tolist() == [9]
    assert len(wheel) == 0


def test_never_early_not_even_by_a_microsecond() -> None:
    wheel = Wheel(NOW)
    wheel.arm(1, NOW + 5 * SECOND)
    assert wheel.pop_due(NOW + 5 * SECOND - 1).size == 0
    assert wheel.pop_due(NOW + 5 * SECOND).tolist() == [1]


def test_past_instants_are_due_at_once_oldest_first() -> None:
    wheel = Wheel(NOW)
    wheel.arm_many([4, 2, 3], [NOW, NOW - 90 * 86_400 * SECOND, NOW - 1])
    assert wheel.pop_due(NOW).tolist() == [2, 3, 4]


def test_equal_instants_come_in_slot_order() -> None:
    wheel = Wheel(NOW)
    wheel.arm_many([9, 3, 7, 1], np.full(4, NOW + 40 * SECOND))
    assert wheel.pop_due(NOW + 40 * SECOND).tolist() == [1, 3, 7, 9]


def test_a_slot_named_twice_in_one_call_keeps_the_last_instant() -> None:
    wheel = Wheel(NOW)
    wheel.arm_many([5, 5], [NOW + 1, NOW + 2])
    assert len(wheel) == 1
    assert wheel.at(5) == NOW + 2
    assert wheel.pop_due(NOW + 3).tolist() == [5]


def test_an_empty_year_is_skipped_in_a_few_wakes() -> None:
    wheel = Wheel(NOW)
    due = NOW + 365 * 86_400 * SECOND + 12_345
    wheel.arm(0, due)
    wakes = 0
    while (wake := wheel.next_at()) is not None and wakes < 10:
        wakes += 1
        if wheel.pop_due(wake).size:
            break
    assert wake == due
    assert wakes <= 4


def test_next_at_is_exact_within_the_current_tick() -> None:
    wheel = Wheel(NOW)
    wheel.arm(0, NOW + 77)
    assert wheel.next_at() == NOW + 77
    wheel.cancel(0)
    assert wheel.next_at() is None


@pytest.mark.parametrize("ahead", [-SECOND, 1, SECOND, 60 * SECOND, 86_400 * SECOND])
def test_re_arming_one_slot_for_ever_keeps_memory_bounded(ahead: int) -> None:
    wheel = Wheel(NOW)
    wheel.arm(1, NOW + ahead)
    for turn in range(50_000):
        wheel.arm(0, NOW + ahead + turn % 2)
    assert wheel.nbytes() < 40_000
    assert wheel.pop_due(NOW + ahead + 1).tolist() == [1, 0]


def test_re_arming_through_many_distant_buckets_keeps_memory_bounded() -> None:
    wheel = Wheel(NOW)
    for turn in range(50_000):
        wheel.arm(0, NOW + turn * 3_600 * SECOND)
    assert wheel.nbytes() < 400_000


def test_cancelling_everything_frees_the_buckets() -> None:
    wheel = Wheel(NOW)
    wheel.arm_many(np.arange(100_000), NOW + np.arange(100_000) * SECOND)
    full = wheel.nbytes()
    for slot in range(100_000):
        wheel.cancel(slot)
    assert len(wheel) == 0
    assert wheel.next_at() is None
    assert wheel.nbytes() < full * 0.75


def test_memory_is_a_column_and_a_bucket_entry() -> None:
    size = 200_000
    wheel = Wheel(NOW, capacity=size)
    at = NOW + np.random.default_rng(7).integers(0, 86_400 * SECOND, size)
    wheel.arm_many(np.arange(size), at)
    assert wheel.nbytes() / size < 16


@pytest.mark.parametrize(("slots", "at"), [([-1], [NOW]), ([1, 2], [NOW]), ([1], [NEVER])], ids=["slot", "pairs", "at"])
def test_a_bad_bulk_call_is_refused_and_changes_nothing(slots: list[int], at: list[int]) -> None:
    wheel = Wheel(NOW)
    with pytest.raises((IndexError, ValueError)):
        wheel.arm_many(slots, at)
    assert len(wheel) == 0


def test_a_bad_single_call_is_refused() -> None:
    wheel = Wheel(NOW)
    with pytest.raises(IndexError):
        wheel.arm(-1, NOW)
    with pytest.raises(ValueError, match="beyond"):
        wheel.arm(1, NEVER)
    assert len(wheel) == 0
