"""A process dies between two effects: one fault for each ``reach("…")`` in the product's source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cronstream.fault_points import VARIABLE
from tests.faults.faults.scene import MODULES, Disturb, Hit, Scene

ROOT = Path(__file__).parents[3]
_POINT = re.compile(r"""(?:\breach|\._passed)\(["']([a-z_.]+)["'][,)]""")
_OF_STAGES = re.compile(r"""\._reach\(["']([a-z_.]+)["']\)""")
STAGES = ("admit", "settle")
"""The stages that share one lane; its points are named after the stage."""
_FOLDERS = {"coordinator": "leader", "workers": "worker", "streams": "streams"}
_OWN_MODULES = {module.replace(".", "/") + ".py": role for role, module in MODULES.items() if "." in module}
DIES_WITHIN = 45.0


def named_points(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """(role, point) of every point in the source."""
    for folder, role in _FOLDERS.items():
        for file in sorted((root / folder).rglob("*.py")):
            own = _OWN_MODULES.get(str(file.relative_to(root)), role)
            text = file.read_text()
            for point in _POINT.findall(text):
                yield own, point
            for point in _OF_STAGES.findall(text):
                yield from ((own, f"{stage}.{point}") for stage in STAGES)


def die_at(role: str, point: str, scene: Scene) -> Hit:
    """Started anew with the point armed; the leader's kind is made leader first."""
    cluster = scene.cluster
    # A term's first steps are taken once a term.
    times = 1 if point.startswith("office.") else scene.random.randint(1, 5)
    if role == "leader":
        other, node = scene.role("leader"), scene.role("standby")
    else:
        other, node = None, scene.role(role)
    cluster.terminate(node)
    cluster.start(node, {VARIABLE: f"{point}:{times}"}, keep=False)
    try:
        if other is not None:
            scene.wait(lambda: cluster.at_work(node) or cluster.pid(node) is None, 30, f"{node} runs")
            cluster.terminate(other)
            scene.wait(lambda: scene.another_leads(other) or cluster.pid(node) is None, 20, f"{node} leads")
            cluster.start(other)
        scene.wait(lambda: cluster.pid(node) is None, DIES_WITHIN, f"{node} dies at {point}:{times}")
        cluster.died(node)
    finally:
        if cluster.pid(node) is not None:
            cluster.terminate(node)
        cluster.start(node)
        if other is not None:
            cluster.start(other)
    return Hit(node, f"at {point}, the {times}. time")


def faults() -> dict[str, Disturb]:
    """By name: ``die at POINT``."""
    return {f"die at {point}": partial(die_at, role, point) for role, point in named_points()}
