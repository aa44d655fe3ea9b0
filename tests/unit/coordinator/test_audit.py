"""The audit counts as missed what capture has passed over, and nothing that waits in our own queue."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.read_ahead import MANY
from cronstream.clock import SECOND
from tests.properties.term.world import World
from tests.unit.coordinator.test_dispatcher import go_on


def test_an_edit_that_waits_behind_a_heartbeat_in_our_own_queue_was_not_missed() -> None:
    world = World(1)
    world.meanwhile = world.log.faults = False
    go_on(world, 2)
    job_id = world.insert(every_us=SECOND)
    ask = world.reader._ask_rows

    def delivered_meanwhile(name: str, given: dict[str, Any]) -> list[Any]:
        rows = ask(name, given)
        if name == "open_changes":
            for event in world.feed:
                world.reader.changed(*event)
            world.reader.beat(world.now_us() + 5 * SECOND)
        return rows

    world.reader._ask_rows = delivered_meanwhile
    world.clock.advance(1.5)
    world.read()
    assert world.reader.capture_missed == 0
    world.reader._ask_rows = ask
    go_on(world, 3)
    assert world.tables.schedules[job_id].next_us is not None
    assert world.reader.capture_missed == 0


def test_an_edit_that_capture_lost_is_planned_and_counted() -> None:
    world = World(1)
    world.meanwhile = world.log.faults = False
    go_on(world, 2)
    job_id = world.insert(every_us=SECOND)
    world.feed.clear()
    world.clock.advance(1.5)
    world.reader.beat(world.now_us() + 5 * SECOND)
    go_on(world, 3)
    assert world.tables.schedules[job_id].next_us is not None
    assert world.reader.capture_missed == 1


MORE = 2 * MANY + 50


def long_transaction(world: World) -> list[int]:
    """Many inserts of one commit."""
    return [world.insert(every_us=60 * SECOND) for _ in range(MORE)]


def planned(world: World, jobs: list[int]) -> int:
    return sum(job_id in world.tables.schedules for job_id in jobs)


def quiet_world() -> World:
    world = World(1)
    world.meanwhile = world.log.faults = False
    go_on(world, 2)
    return world


def deliver(world: World, count: int) -> None:
    """The feed brings so many edits, and no heartbeat behind them."""
    for event in world.feed[:count]:
        world.reader.changed(*event)
    del world.feed[:count]


def turn(world: World, seconds: float = 0.5) -> None:
    world.clock.advance(seconds)
    for part in (world.read, world.dispatch, world.write_all):
        part()


def test_a_long_transaction_is_planned_before_capture_has_brought_all_of_it() -> None:
    world = quiet_world()
    jobs = long_transaction(world)
    deliver(world, MANY)
    turn(world)
    assert planned(world, jobs) == MORE
    asked: list[str] = []
    ask = world.reader._ask_rows

    def noted(name: str, given: dict[str, Any]) -> list[Any]:
        asked.append(name)
        return ask(name, given)

    world.reader._ask_rows = noted
    while world.feed:  # the rest comes for a minute
        deliver(world, 5)
        turn(world, 2.0)
    assert "read_edits" not in asked
    world.reader.beat(world.now_us())
    for _ in range(20):
        turn(world)
    assert (world.reader.capture_missed, world.tables.changes) == (0, {})


def test_it_is_read_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.reader._EDITS_AT_ONCE", 60)
    world = quiet_world()
    jobs = long_transaction(world)
    deliver(world, MANY)
    found = []
    for _ in range(4):
        turn(world, 0.0)
        found.append(planned(world, jobs))
    assert found == [MANY + 60, MANY + 120, MORE, MORE]


def test_what_is_being_read_ahead_is_not_missed_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capture stands still in the middle of a transaction, and the machine is slow."""
    monkeypatch.setattr("coordinator.reader._EDITS_AT_ONCE", 40)
    world = quiet_world()
    jobs = long_transaction(world)
    deliver(world, MANY)
    for _ in range(5):
        turn(world, 4.0)
    assert (planned(world, jobs), world.reader.capture_missed) == (MORE, 0)
    deliver(world, MORE)
    go_on(world, 3)  # with heartbeats
    assert (world.tables.changes, world.reader.capture_missed) == ({}, 0)


def test_few_edits_at_once_are_followed_one_by_one() -> None:
    world = quiet_world()
    jobs = long_transaction(world)
    deliver(world, MANY - 1)
    turn(world)
    assert planned(world, jobs) == MANY - 1


def test_edits_read_ahead_that_capture_never_brings_are_counted() -> None:
    world = quiet_world()
    jobs = long_transaction(world)
    deliver(world, MANY + 10)
    turn(world)
    world.feed.clear()
    for _ in range(6):
        turn(world)
        world.reader.beat(world.now_us())
    turn(world, 2.0)
    assert (planned(world, jobs), world.reader.capture_missed) == (MORE, MORE - MANY - 10)
    turn(world, 2.0)
    assert world.reader.capture_missed == MORE - MANY - 10


def test_a_feed_that_brings_edits_all_the_time_misses_none_for_want_of_a_heartbeat() -> None:
    """A hundred thousand edits take capture longer than the audit waits for a silent feed."""
    world = quiet_world()
    jobs = long_transaction(world)
    while world.feed:
        deliver(world, 10)
        turn(world, 1.0)
    assert (planned(world, jobs), world.reader.capture_missed) == (MORE, 0)


def test_a_feed_that_decodes_a_long_transaction_for_long_has_missed_nothing() -> None:
    """It is silent meanwhile, and the edits are planned from the table; then it brings them all."""
    world = quiet_world()
    jobs = long_transaction(world)
    for _ in range(4):
        turn(world, 5.0)
    assert (planned(world, jobs), world.reader.capture_missed) == (MORE, 0)
    deliver(world, MORE)
    go_on(world, 3)
    assert (world.tables.changes, world.reader.capture_missed) == ({}, 0)


def test_what_was_planned_in_silence_and_never_comes_was_missed() -> None:
    world = quiet_world()
    jobs = long_transaction(world)
    for _ in range(4):
        turn(world, 5.0)
    world.feed.clear()
    for _ in range(6):
        turn(world)
        world.reader.beat(world.now_us())
    turn(world, 6.0)
    assert (planned(world, jobs), world.reader.capture_missed) == (MORE, MORE)


def test_an_edit_that_came_shows_how_far_the_feed_has_come() -> None:
    """Heartbeats may be missing; what was committed well before is missed all the same."""
    world = quiet_world()
    lost = world.insert(every_us=SECOND)
    world.feed.clear()
    for _ in range(4):
        world.clock.advance(1.0)
        world.insert(every_us=SECOND)
        deliver(world, 1)
        turn(world, 0.0)
    assert world.tables.schedules[lost].next_us is not None
    assert world.reader.capture_missed == 1
