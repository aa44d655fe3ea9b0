"""The audit counts as missed what capture has passed over, and nothing that waits in our own queue."""

from __future__ import annotations

from typing import Any

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
