"""The wheel against a sorted list of the same interface."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from coordinator.wheel import BLOCK_SHIFT, SPAN_SHIFT, TICK_SHIFT, Wheel

SLOTS = st.integers(0, 60)
YEAR_US = 365 * 86_400 * 1_000_000

# Distances that fall on, beside and far from the edges of every level.
EDGES = [0, 1, 1 << TICK_SHIFT, 1 << SPAN_SHIFT, 1 << BLOCK_SHIFT, 1 << (BLOCK_SHIFT + 5)]
DISTANCES = st.one_of(
    st.sampled_from(EDGES).flatmap(lambda edge: st.integers(edge - 2, edge + 2)),
    st.integers(0, 200_000),
    st.integers(0, 30_000_000),
    st.integers(0, 7_200_000_000),
    st.integers(0, 40 * YEAR_US),
)
OFFSETS = st.one_of(DISTANCES, DISTANCES.map(lambda d: -d))
STEPS = DISTANCES.map(lambda d: max(d, 0)).filter(lambda d: d < YEAR_US)


class SortedModel:
    """The plainest thing that can be right: everything armed, sorted when asked."""

    def __init__(self) -> None:
        self.armed: dict[int, int] = {}

    def pop_due(self, now_us: int) -> list[int]:
        due = sorted((at, slot) for slot, at in self.armed.items() if at <= now_us)
        for _, slot in due:
            del self.armed[slot]
        return [slot for _, slot in due]


class WheelMatchesSortedList(RuleBasedStateMachine):
    @initialize(now=st.integers(0, 60 * YEAR_US), capacity=st.sampled_from([1, 8, 1024]))
    def start(self, now: int, capacity: int) -> None:
        self.now = now
        self.wheel = Wheel(now, capacity=capacity)
        self.model = SortedModel()

    @rule(slot=SLOTS, offset=OFFSETS)
    def arm(self, slot: int, offset: int) -> None:
        self.wheel.arm(slot, self.now + offset)
        self.model.armed[slot] = self.now + offset

    @rule(pairs=st.lists(st.tuples(SLOTS, OFFSETS), max_size=40))
    def arm_many(self, pairs: list[tuple[int, int]]) -> None:
        at = [self.now + offset for _, offset in pairs]
        slots = [slot for slot, _ in pairs]
        self.wheel.arm_many(np.array(slots, dtype=np.int32), np.array(at, dtype=np.int64))
        self.model.armed.update(zip(slots, at, strict=True))

    @rule(slots=st.lists(SLOTS, min_size=2, max_size=30), offset=OFFSETS)
    def arm_at_one_instant(self, slots: list[int], offset: int) -> None:
        at = self.now + offset
        self.wheel.arm_many(slots, np.full(len(slots), at))
        self.model.armed.update(dict.fromkeys(slots, at))

    @rule(slot=SLOTS, offset=OFFSETS, times=st.integers(2, 1500))
    def arm_again_and_again(self, slot: int, offset: int, times: int) -> None:
        for turn in range(times):
            self.wheel.arm(slot, self.now + offset + turn % 3)
        self.model.armed[slot] = self.now + offset + (times - 1) % 3

    @rule(slot=st.integers(-5, 5000))
    def cancel(self, slot: int) -> None:
        self.wheel.cancel(slot)
        self.model.armed.pop(slot, None)

    @rule(step=STEPS)
    def advance(self, step: int) -> None:
        self.now += step
        assert self.wheel.pop_due(self.now).tolist() == self.model.pop_due(self.now)

    @rule(ahead=st.one_of(st.integers(1, 200), st.integers(1, 1 << 15)))
    def look_ahead(self, ahead: int) -> None:
        """What is filed under a later tick is told and stays armed."""
        tick = (self.now >> TICK_SHIFT) + ahead
        wanted = sorted(slot for slot, at in self.model.armed.items() if at >> TICK_SHIFT == tick)
        if ahead < 64:  # further on it may lie in a wider bucket that other ticks share
            assert self.wheel.filed(tick).tolist() == wanted
        else:
            assert set(self.wheel.filed(tick).tolist()) <= set(wanted)

    @rule()
    def sleep_until_next(self) -> None:
        """What a driver does: a handful of wakes reaches the first due slot, never past it."""
        if not self.model.armed:
            return
        first = min(self.model.armed.values())
        for _ in range(200):
            wake = self.wheel.next_at()
            assert wake is not None
            assert wake <= first
            self.now = max(self.now, wake)
            due = self.wheel.pop_due(self.now).tolist()
            assert due == self.model.pop_due(self.now)
            if due:
                return
        raise AssertionError("200 wakes did not reach the first due slot")

    @rule(back=st.integers(0, 10_000_000))
    def ask_an_earlier_now(self, back: int) -> None:
        """The database's clock may be re-anchored a little earlier: still never early."""
        asked = self.now - back
        assert self.wheel.pop_due(asked).tolist() == self.model.pop_due(asked)

    @invariant()
    def same_entries(self) -> None:
        if not hasattr(self, "wheel"):
            return
        armed = self.model.armed
        assert len(self.wheel) == len(armed)
        for slot in range(-1, 62):
            assert self.wheel.at(slot) == armed.get(slot)
        wake = self.wheel.next_at()
        assert (wake is None) == (not armed)
        assert wake is None or wake <= min(armed.values())


TestWheelMatchesSortedList = WheelMatchesSortedList.TestCase
TestWheelMatchesSortedList.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
