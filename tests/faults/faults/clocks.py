"""The leader's wall clock is stepped by an hour; nobody else's is."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tests.faults.faults.scene import Disturb, Hit, Missed, Scene

LIBRARIES = tuple(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
ENDS_WITHIN = 15.0
"""The clocks are compared every five seconds; a lease may have to run out after that."""


def step(offset: str, scene: Scene) -> Hit:
    """A coordinator under libfaketime is made leader, then its clock is stepped: it must stop leading."""
    cluster = scene.cluster
    other, node = scene.role("leader"), scene.role("standby")
    file = cluster.home.path / "faketime"
    file.write_text("+0")
    token = scene.collector.newest_token
    cluster.terminate(node)
    cluster.start(node, _variables(file))
    try:
        scene.wait(lambda: cluster.at_work(node), 30, f"{node} runs with a clock of its own")
        cluster.terminate(other)
        scene.wait(lambda: scene.another_leads(other), 20, f"{node} leads")
        cluster.start(other)
        # libfaketime does not reach the Kafka client's waits: one that begins after a step forward lasts an hour,
        # and who takes office just then would not come back from it.
        scene.wait(lambda: scene.collector.newest_token > token, 20, f"{node} publishes")
        file.write_text(offset)
        scene.wait(lambda: scene.another_leads(node), ENDS_WITHIN, f"{node} gives up the office")
        scene.sleep(1, 3)
        leader = cluster.leader()
        if leader is not None and leader.node == node:
            raise Missed(f"{node} leads again, with its clock {offset}")
    finally:
        cluster.terminate(node)
        cluster.start(node)
    return Hit(node, f"its clock {offset}")


def skewed(scene: Scene) -> Hit:
    """A standby whose clock is 40 s ahead wins the election when the leader goes: it must not lead."""
    cluster = scene.cluster
    other, node = scene.role("leader"), scene.role("standby")
    file = cluster.home.path / "faketime"
    file.write_text("+40")
    token = scene.collector.newest_token
    cluster.terminate(node)
    cluster.start(node, _variables(file))
    try:
        scene.wait(lambda: cluster.at_work(node), 30, f"{node} runs with a clock of its own")
        cluster.terminate(other)
        scene.wait(lambda: scene.another_leads(other), 20, f"{node} is elected")
        scene.sleep(3, 5)
        if scene.collector.newest_token != token:
            raise Missed(f"a term published after {other} had gone, though {node} is 40 s ahead")
    finally:
        cluster.start(other)
        cluster.terminate(node)
        cluster.start(node)
    return Hit(node, "40 s ahead, and published nothing")


def _variables(file: Path) -> dict[str, str]:
    return {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


FAULTS: dict[str, Disturb] = (
    {
        "clock forward": partial(step, "+3600"),
        "clock back": partial(step, "-3600"),
        "clock skewed": skewed,
    }
    if LIBRARIES
    else {}
)
