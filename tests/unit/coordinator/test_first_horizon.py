"""A new leader loads what lies behind the tail at once, and what may stand in it when it is written."""

from __future__ import annotations

from typing import Any

import pytest

from cronstream.clock import SECOND
from tests.properties.term.world import World
from tests.unit.coordinator.test_dispatcher import go_on


def world_with_a_tail() -> World:
    """A leader that published and did not advance; one job that it fired, and one that falls due later."""
    world = World(1)
    world.meanwhile = world.log.faults = False
    world.insert(every_us=SECOND)
    world.insert(every_us=7 * SECOND)
    go_on(world, 2)
    world.clock.advance(1.0)
    world.dispatch()
    assert world.writer.waiting
    return world


def watched(world: World, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is asked and written from now on: (after, until) of each slice, and the names of all else."""
    seen: list[Any] = []
    read, write = world.tables.read, world.tables.write

    def reading(name: str, given: dict[str, Any]) -> list[Any]:
        seen.append((given["after_us"], given["until_us"]) if name == "load" else name)
        return read(name, given)

    def writing(name: str, given: dict[str, Any], now_us: int) -> list[tuple[int, int]]:
        seen.append(name)
        return write(name, given, now_us)

    monkeypatch.setattr(world.tables, "read", reading)
    monkeypatch.setattr(world.tables, "write", writing)
    return seen


def newest_published(world: World) -> int:
    return max(int(batch.scheduled.max()) for records in world.log.records.values() for batch in records)


def test_what_lies_behind_the_tail_is_loaded_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with_a_tail()
    tail_us = newest_published(world)
    world.take_office()
    seen = watched(world, monkeypatch)
    monkeypatch.setattr(world, "write", lambda: world.write_all() if seen else None)
    world.read()
    until_us = world.reader._horizon_us
    assert seen[0] == (tail_us + 1, until_us)
    written, overdue, edits = seen.index("apply_tail"), seen.index((None, tail_us + 1)), seen.index("open_changes")
    assert 0 < written < overdue < edits
    world.dispatch()
    assert world.dispatcher.loaded == 2
    world.settle()
    world.check()


def test_without_a_tail_all_is_loaded_soonest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(1)
    world.meanwhile = world.log.faults = False
    seen = watched(world, monkeypatch)
    world.read()
    assert seen[:2] == [(None, world.reader._horizon_us), "open_changes"]
    assert "apply_tail" not in seen


def test_a_leader_that_dies_before_its_tail_is_written_leaves_it_to_the_next() -> None:
    world = world_with_a_tail()
    for _ in range(3):
        world.take_office()
    for _ in range(4):
        world.clock.advance(0.5)
        world.act(world.read, world.dispatch, world.write_all)
    world.settle()
    world.check()


def test_a_million_open_edits_do_not_hold_up_what_falls_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader is elected while they are open: they are planned between slices, and while the horizon moves on."""
    monkeypatch.setattr("coordinator.reader._EDITS_BETWEEN_SLICES", 10)
    world = World(1)
    world.meanwhile = world.log.faults = False
    due = [world.insert(every_us=7 * SECOND) for _ in range(40)]
    go_on(world, 2)
    opened = [world.insert(every_us=3600 * SECOND) for _ in range(600)]
    world.feed.clear()
    world.take_office()
    ask = world.reader._ask_rows

    def slow(name: str, given: dict[str, Any]) -> list[Any]:
        if name == "read_edits":
            world.clock.advance(0.1 * len(given["job_ids"]))
            world.dispatch()
            world.write_all()
        return ask(name, given)

    world.reader._ask_rows = slow
    began_us = world.now_us()
    world.read()
    assert world.now_us() - began_us >= 60 * SECOND
    world.dispatch()
    world.write_all()
    assert all(job_id in world.tables.schedules for job_id in opened)
    late_us = [at_us - item.scheduled_us for job_id in due for at_us, item in world.log.items(job_id)]
    assert len(late_us) >= 40 * 7
    assert max(late_us) < 3 * SECOND
