"""What stands still is told in time, and what works or has nothing to do never."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from faust.types import TP

from cronstream.clock import FakeClock
from streams.app import StreamsApp
from streams.watchdog import Standstill, Watchdog

OUTCOMES = TP("cronstream.outcomes", 1)


@dataclass
class LaneOf:
    ended: int = 0
    busy: bool = False
    done: dict[str, int] = field(default_factory=dict)
    failure: BaseException | None = None


def watch(lane: LaneOf, position: tuple[int, int] | None = None) -> tuple[Watchdog, FakeClock]:
    app = SimpleNamespace(
        lanes={OUTCOMES: lane},
        recovered_rows=0,
        membership=SimpleNamespace(trusted=lambda: True),
        committed=dict[Any, int],
        positions=lambda: {} if position is None else {OUTCOMES: position},
    )
    clock = FakeClock()
    return Watchdog(cast(StreamsApp, app), clock, standstill_seconds=60), clock


def test_a_lane_that_failed_is_told_at_once_and_why() -> None:
    lane = LaneOf(busy=True)
    watchdog, _ = watch(lane)
    watchdog.look()
    lane.failure = OSError("No space left on device")
    with pytest.raises(Standstill, match=r"cronstream.outcomes\[1\] failed: .*No space left on device"):
        watchdog.look()


def test_a_lane_that_has_work_and_ends_none_is_told_after_its_time() -> None:
    lane = LaneOf(busy=True)
    watchdog, clock = watch(lane)
    watchdog.look()
    clock.advance(40)
    lane.ended += 1
    watchdog.look()
    clock.advance(40)
    watchdog.look()
    clock.advance(40)
    with pytest.raises(Standstill, match="is not worked on for 80 s"):
        watchdog.look()


def test_a_lane_without_work_may_stand_still() -> None:
    watchdog, clock = watch(LaneOf())
    for _ in range(3):
        watchdog.look()
        clock.advance(100)


def test_a_slow_lane_behind_what_was_fetched_ahead_is_no_standstill_and_a_fetch_that_brings_nothing_is() -> None:
    lane = LaneOf()
    watchdog, clock = watch(lane, position=(500, 900))
    for _ in range(5):
        watchdog.look()
        clock.advance(40)
        lane.ended += 1
    watchdog.look()
    clock.advance(61)
    with pytest.raises(Standstill, match="is not fetched for 61 s"):
        watchdog.look()
