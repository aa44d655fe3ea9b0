"""SIGKILL, SIGTERM and SIGSTOP, for each process by its role."""

from __future__ import annotations

import importlib.util
from functools import partial

from tests.faults.faults.scene import MODULES, Disturb, Hit, Scene

ROLES = ("leader", "standby", *(role for role, module in MODULES.items() if importlib.util.find_spec(module)))


def kill(role: str, scene: Scene) -> Hit:
    """SIGKILL; started again after a moment."""
    node = scene.role(role)
    scene.cluster.kill(node)
    scene.wait(lambda: scene.cluster.pid(node) is None, 5, f"{node} is dead")
    down = scene.sleep(0.3, 3)
    scene.cluster.start(node)
    return Hit(node, f"down for {down:.1f} s")


def terminate(role: str, scene: Scene) -> Hit:
    """SIGTERM, and its orderly end; started again after a moment."""
    node = scene.role(role)
    began = scene.cluster.clock.boot_ns()
    scene.cluster.terminate(node)
    took = (scene.cluster.clock.boot_ns() - began) / 1e9
    scene.sleep(0.3, 3)
    scene.cluster.start(node)
    return Hit(node, f"ended after {took:.2f} s")


def pause(role: str, scene: Scene) -> Hit:
    """SIGSTOP, then SIGCONT: it wakes up with all that it had in hand."""
    node = scene.role(role)
    scene.cluster.pause(node)
    try:
        seconds = scene.sleep(1, scene.longest_pause)
    finally:
        scene.cluster.resume(node)
    return Hit(node, f"stopped for {seconds:.1f} s")


def pause_in_takeover(scene: Scene) -> Hit:
    """The leader is killed, and its successor stopped right after its election, for longer than its lease."""
    leader = scene.role("leader")
    scene.cluster.kill(leader)
    scene.wait(lambda: scene.another_leads(leader), 20, "the standby is elected")
    successor = scene.role("leader")
    scene.cluster.pause(successor)
    try:
        scene.cluster.start(leader)
        seconds = scene.sleep(1, scene.longest_pause)
    finally:
        scene.cluster.resume(successor)
    return Hit(successor, f"stopped for {seconds:.1f} s when it had just won")


def kill_in_takeover(scene: Scene) -> Hit:
    """The leader is killed, and its successor too, right after its election."""
    leader = scene.role("leader")
    scene.cluster.kill(leader)
    scene.wait(lambda: scene.another_leads(leader), 20, "the standby is elected")
    successor = scene.role("leader")
    scene.sleep(0, 0.5)
    scene.cluster.kill(successor)
    scene.cluster.start(leader)
    scene.cluster.start(successor)
    return Hit(successor, f"after {leader}")


FAULTS: dict[str, Disturb] = {
    **{f"kill {role}": partial(kill, role) for role in ROLES},
    **{f"terminate {role}": partial(terminate, role) for role in ROLES},
    **{f"pause {role}": partial(pause, role) for role in ROLES},
    "pause successor": pause_in_takeover,
    "kill successor": kill_in_takeover,
}
