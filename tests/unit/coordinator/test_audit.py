"""The audit counts as missed what capture has passed over, and nothing that waits in our own queue."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cronstream.changes import Changes
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
                world.reader.changed(event)
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


MORE, PART = 250, 50


def long_transaction(world: World) -> list[int]:
    """Many inserts of one commit, told in messages of PART edits."""
    jobs = [world.insert(every_us=60 * SECOND) for _ in range(MORE)]
    told = [change for changes in world.feed for change in changes.job_of.items()]
    committed_us = world.feed[0].committed_us
    world.feed[:] = [Changes(dict(told[start : start + PART]), committed_us) for start in range(0, MORE, PART)]
    return jobs


def planned(world: World, jobs: list[int]) -> int:
    return sum(job_id in world.tables.schedules for job_id in jobs)


def quiet_world() -> World:
    world = World(1)
    world.meanwhile = world.log.faults = False
    go_on(world, 2)
    return world


def deliver(world: World, messages: int) -> None:
    """The feed brings so many messages, and no heartbeat behind them."""
    for changes in world.feed[:messages]:
        world.reader.changed(changes)
    del world.feed[:messages]


def turn(world: World, seconds: float = 0.5) -> None:
    world.clock.advance(seconds)
    for part in (world.read, world.dispatch, world.write_all):
        part()


def test_the_edits_of_a_statement_are_planned_as_its_messages_come() -> None:
    world = quiet_world()
    jobs = long_transaction(world)
    found = []
    while world.feed:
        deliver(world, 1)
        turn(world, 2.0)
        found.append(planned(world, jobs))
    world.reader.beat(world.now_us())
    for _ in range(20):
        turn(world)
    assert found == [PART, 2 * PART, 3 * PART, 4 * PART, MORE]
    assert (world.reader.capture_missed, world.tables.changes) == (0, {})


def test_many_edits_are_read_in_pages_between_which_due_jobs_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.reader._EDITS_AT_ONCE", PART + 10)
    world = quiet_world()
    jobs = long_transaction(world)
    deliver(world, MORE)
    found = []
    for _ in range(4):
        turn(world, 0.0)
        found.append(planned(world, jobs))
    assert found == [2 * PART, 4 * PART, MORE, MORE]


def test_what_waits_for_its_page_is_not_missed_however_long_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is slow, and heartbeats stand behind the edits."""
    monkeypatch.setattr("coordinator.reader._EDITS_AT_ONCE", PART)
    world = quiet_world()
    jobs = long_transaction(world)
    deliver(world, MORE)
    found = []
    for _ in range(6):
        world.reader.beat(world.now_us())
        turn(world, 4.0)
        found.append((planned(world, jobs), world.reader.capture_missed))
    assert found[-1] == (MORE, 0)
    assert {missed for _, missed in found} == {0}


def test_messages_that_capture_never_brings_are_counted_by_their_edits() -> None:
    world = quiet_world()
    jobs = long_transaction(world)
    deliver(world, 2)
    turn(world)
    world.feed.clear()
    for _ in range(6):
        turn(world)
        world.reader.beat(world.now_us())
    turn(world, 2.0)
    assert (planned(world, jobs), world.reader.capture_missed) == (MORE, MORE - 2 * PART)
    turn(world, 2.0)
    assert world.reader.capture_missed == MORE - 2 * PART


def test_a_feed_that_brings_edits_all_the_time_misses_none_for_want_of_a_heartbeat() -> None:
    """A long transaction may take capture longer than the audit waits for a silent feed."""
    world = quiet_world()
    jobs = long_transaction(world)
    while world.feed:
        deliver(world, 1)
        turn(world, 2.5)
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


def test_an_audit_that_takes_longer_than_the_horizon_reaches_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.reader._EDITS_AT_ONCE", 10)
    world = quiet_world()
    every = world.insert(every_us=20 * SECOND)
    go_on(world, 2)
    jobs = long_transaction(world)
    world.feed.clear()
    ask = world.reader._ask_rows

    def slow(name: str, given: dict[str, Any]) -> list[Any]:
        if name == "read_edits":
            world.clock.advance(2.0)
            world.dispatch()
            world.write_all()
        return ask(name, given)

    world.reader._ask_rows = slow
    for _ in range(4):
        turn(world, 5.0)
    assert planned(world, jobs) == MORE
    late_us = [at_us - item.scheduled_us for at_us, item in world.log.items(every)]
    assert len(late_us) >= 2
    assert max(late_us) < 3 * SECOND


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


def test_an_audit_that_takes_long_comes_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads every open change, a million of them for nothing while they wait for their turn."""
    monkeypatch.setattr("coordinator.reader._OPEN_AT_ONCE", 50)
    monkeypatch.setattr("coordinator.reader._EDITS_AT_ONCE", 10)
    world = quiet_world()
    long_transaction(world)
    ask, seconds = world.reader._ask_rows, Counter[str]()

    def slow(name: str, given: dict[str, Any]) -> list[Any]:
        took = {"open_changes": 1.0, "read_edits": 0.1}.get(name, 0.0)
        world.clock.advance(took)
        seconds[name] += took
        return ask(name, given)

    world.reader._ask_rows = slow
    deliver(world, MORE)
    while world.tables.changes:
        for part in (world.read, world.dispatch, world.write_all):
            part()
    assert seconds["open_changes"] <= 6.0
    looked = seconds["open_changes"]
    for _ in range(400):
        turn(world, 1.0)
    assert 400 / 12 <= seconds["open_changes"] - looked <= 400 / 5
