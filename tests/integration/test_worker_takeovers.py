"""Workers that come, go and die on a real broker: what the next one runs, and what it says was lost."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from cronstream.records import Kind
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from tests.support.workers import SCHEDULED_US, World, command_item, is_alive, log_item, saying_its_pid

QUICK = ["true"]
SLOW = ["sleep", "600"]


@pytest.fixture
def world(kafka: str, installation: TestInstallation) -> Iterator[World]:
    made = World(kafka, installation)
    yield made
    made.close()


def test_a_killed_workers_finished_runs_are_not_run_again_and_its_running_ones_are_lost(
    world: World, tmp_path: Path
) -> None:
    command = saying_its_pid(tmp_path, "sleep 600")
    quick = range(1, 21)
    slow = range(100, 110)  # Of 8 slots one tenant holds 6: four wait.
    first = world.worker("w1", slots=8)
    world.emit(0, *(command_item(job, command(job), tenant="slow") for job in slow), *map(log_item, quick))
    world.wait_for_ends(len(quick))
    running = eventually(lambda: sorted(tmp_path.iterdir()) if len(list(tmp_path.iterdir())) == 6 else [], within=60)
    pids = [int(path.read_text()) for path in running]
    first.send_signal(signal.SIGKILL)
    first.wait(60)
    eventually(lambda: not any(is_alive(pid) for pid in pids), within=60)

    for path in running:
        path.unlink()
    second = world.worker("w2", slots=8, drain_seconds=0)
    ends = world.wait_for_ends(len(quick) + 6)
    lost = {job for job, kind in ends.items() if kind == "LOST"}
    assert lost == {int(path.name) for path in running}
    report = world.report(min(lost), Kind.LOST)
    assert report.worker == "w1"
    assert report.started_at > SCHEDULED_US
    assert report.work is not None
    assert world.ran("w2") == []
    waiting = set(slow) - lost
    eventually(lambda: {int(path.name) for path in tmp_path.iterdir()} == waiting, within=60)

    second.terminate()
    assert second.wait(60) == 0
    ends = world.wait_for_ends(len(quick) + len(slow))
    assert {job for job, kind in ends.items() if kind == "LOST"} == set(slow)
    assert world.committed(0).offset == 1


def test_workers_come_and_go_and_every_attempt_runs_once(world: World) -> None:
    world.worker("w1", slots=20)
    jobs = iter(range(1, 10_000))

    def load(records: int) -> None:
        for number in range(records):
            quick = [log_item(next(jobs)) for _ in range(10)]
            world.emit(number % 4, *quick, command_item(next(jobs), ["sleep", "0.3"], tenant=f"t{number}"))

    load(8)
    eventually(lambda: len(world.jobs(Kind.STARTED)) > 10, within=60)
    second = world.worker("w2", slots=20)
    load(8)
    eventually(lambda: "action=taken_over" in world.installation.log_of("w2"), within=30)
    load(24)
    eventually(lambda: world.ran("w2"), within=60)
    third = world.worker("w3", slots=20)
    load(8)
    second.terminate()
    load(8)
    assert second.wait(60) == 0
    eventually(lambda: "action=up" in world.installation.log_of("w3"), within=60)
    third.terminate()
    load(8)
    assert third.wait(60) == 0
    count = next(jobs) - 1
    ends = world.wait_for_ends(count, within=60)
    assert Counter(ends.values()) == {"SUCCEEDED": count}
    ran = Counter(job for node in ("w1", "w2", "w3") for job in world.ran(node))
    assert set(ran.values()) == {1}


def test_a_worker_that_stood_still_and_was_replaced_starts_nothing_more(world: World) -> None:
    first = world.worker("w1", slots=2, drain_seconds=1)
    waiting = [command_item(job, QUICK, tenant="b") for job in range(10, 30)]
    world.emit(0, command_item(1, SLOW), command_item(2, SLOW, tenant="b"), *waiting)
    eventually(lambda: len(world.jobs(Kind.STARTED)) == 2, within=60)
    first.send_signal(signal.SIGSTOP)
    world.worker("w2", slots=10)
    ends = world.wait_for_ends(22)
    assert ends == {1: "LOST", 2: "LOST", **dict.fromkeys(range(10, 30), "SUCCEEDED")}
    first.send_signal(signal.SIGCONT)
    eventually(lambda: "action=lost" in world.installation.log_of("w1"), within=60)
    world.emit(0, log_item(31))
    world.emit(1, log_item(32))
    ends = world.wait_for_ends(24)
    assert (ends[31], ends[32]) == ("SUCCEEDED", "SUCCEEDED")
    ran = Counter(job for node in ("w1", "w2") for job in world.ran(node))
    assert ran == {31: 1, 32: 1}


def test_a_worker_that_is_back_within_its_session_gets_its_partitions_and_nothing_moves(world: World) -> None:
    """A rolling restart of two workers under load: every attempt runs once, no partition changes hands."""
    nodes = {node: world.worker(node, session_timeout_seconds=20) for node in ("w1", "w2")}
    eventually(lambda: len(world.held("w1")) == len(world.held("w2")) == 2, within=60, says="each holds two")
    held = {node: world.held(node) for node in nodes}
    begun = {node: len(world.assignments(node)) for node in nodes}
    jobs = iter(range(1, 10_000))

    def load() -> None:
        for partition in range(4):
            quick = [log_item(next(jobs)) for _ in range(10)]
            world.emit(partition, *quick, command_item(next(jobs), ["sleep", "0.3"], tenant=f"t{partition}"))

    for node in ("w1", "w2"):
        load()
        nodes[node].terminate()
        load()
        assert nodes[node].wait(60) == 0
        load()
        world.worker(node, session_timeout_seconds=20)
        eventually(lambda node=node: len(world.assignments(node)) > begun[node], within=60)  # type: ignore[misc]
        load()
    count = next(jobs) - 1
    assert Counter(world.wait_for_ends(count, within=60).values()) == {"SUCCEEDED": count}
    for node in nodes:
        assert len(world.assignments(node)) == begun[node] + 1
        assert world.held(node) == held[node]


def test_of_two_workers_of_one_name_the_older_leaves_and_says_why(world: World) -> None:
    first = world.worker("w1")
    eventually(lambda: world.assignments("w1"), within=60)
    world.worker("w1")
    assert first.wait(60) == 1
    assert "another worker calls itself w1" in world.installation.log_of("w1")


ATTEMPTS = range(1, 6)
DEATHS: dict[str, tuple[set[int], set[str]]] = {
    # Where the worker dies: how many of five runs it has executed, and how those may end that it had taken.
    "work.taken": ({0}, {"SUCCEEDED"}),
    "work.starting": ({0}, {"SUCCEEDED", "LOST"}),
    "work.started": ({0}, {"LOST"}),
    "work.ran": ({1}, {"LOST"}),
    "work.ending": ({5}, {"SUCCEEDED", "LOST"}),
    "work.ended": ({5}, {"SUCCEEDED"}),
    # The second commit: the first one, of where it began, may come before there is anything to run.
    "work.committed:2": ({0, 5}, {"SUCCEEDED", "LOST"}),
}


@pytest.mark.parametrize("point", DEATHS)
def test_a_worker_may_die_between_any_two_of_its_effects(world: World, point: str) -> None:
    """What had not started is run by the next one, what was in flight is lost, what had ended stays ended."""
    executed, ends = DEATHS[point]
    first = world.worker("w1", fault_point=point)
    world.emit(0, *map(log_item, ATTEMPTS))
    assert first.wait(60) == -signal.SIGKILL
    before = len(world.ran("w1"))
    assert before in executed
    world.worker("w1")
    found = world.wait_for_ends(len(ATTEMPTS))
    assert set(found) == set(ATTEMPTS)
    assert set(found.values()) <= ends
    assert max(Counter(world.ran("w1")).values(), default=1) == 1
    lost = {number for number, kind in found.items() if kind == "LOST"}
    assert len(world.ran("w1")) - before == (len(ATTEMPTS) - len(lost) if before == 0 else 0)
    eventually(lambda: world.committed(0).offset == 1, within=60)


@pytest.mark.parametrize("point", ["work.ending", "work.ended"])
def test_a_worker_may_die_while_it_says_what_its_predecessor_lost(world: World, point: str) -> None:
    first = world.worker("w1", fault_point="work.started")
    world.emit(0, *map(log_item, ATTEMPTS))
    assert first.wait(60) == -signal.SIGKILL
    second = world.worker("w1", fault_point=point)
    assert second.wait(60) == -signal.SIGKILL
    world.worker("w1")
    assert world.wait_for_ends(len(ATTEMPTS)) == dict.fromkeys(ATTEMPTS, "LOST")
    eventually(lambda: world.committed(0).offset == 1, within=60)
    assert world.ends() == dict.fromkeys(ATTEMPTS, "LOST")
    assert world.ran("w1") == []
