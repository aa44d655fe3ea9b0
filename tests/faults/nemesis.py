"""The nemesis: one fault after the other, each over and the system back at work before the next one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random

from tests.faults.cluster import NotRecovered
from tests.faults.events import Fault, Figure, Leader
from tests.faults.faults import FAULTS, Missed, Scene

log = logging.getLogger("faults")

RECOVERS_WITHIN = 180.0

SHORT = (
    "kill leader",
    "kill streams",
    "kill worker",
    "kill sink",
    "kill mover",
    "kill successor",
    "terminate leader",
    "terminate worker",
    "pause leader",
    "pause worker",
    "pause streams",
    "cut leader from etcd",
    "cut leader from kafka",
    "cut leader from postgres",
    "cut standby from etcd",
    "cut streams from kafka",
    "etcd without quorum",
    "kill etcd's leader",
    "crash kafka",
    "crash postgres",
    "crash connect",
    "revoke the lease",
    "drop the slot",
    "open transaction",
    "clock forward",
)
"""The short set: every family once."""


def sequence(random: Random, names: tuple[str, ...] | None) -> Iterator[str]:
    """The given ones in an order of the seed's; without names all there are, shuffled anew each time through."""
    if names is not None:
        chosen = [name for name in names if name in FAULTS]
        random.shuffle(chosen)
        yield from chosen
        return
    while True:
        chosen = list(FAULTS)
        random.shuffle(chosen)
        yield from chosen


def strike(scene: Scene, name: str) -> None:
    """One fault, from the first disturbance to the recovery. Raises NotRecovered."""
    cluster = scene.cluster
    began = cluster.clock.wall_us()
    log.info("fault: %s", name)
    try:
        hit = FAULTS[name](scene)
        target, detail, was_hit = hit.target, hit.detail, True
    except Missed as missed:
        target, detail, was_hit = "", str(missed), False
    ended = cluster.clock.wall_us()
    cluster.recorder.record(Fault(name, target, began, ended, was_hit, detail))
    log.info("  %s %s: %s", "hit" if was_hit else "MISSED", target, detail)
    recover(scene, name)


def recover(scene: Scene, name: str) -> None:
    """Wait until all processes are at work, and runs that fell due after the fault go through every partition."""
    cluster, collector = scene.cluster, scene.collector
    began = cluster.clock.wall_us()

    def at_work() -> bool:
        return all(cluster.at_work(node) for node in cluster.nodes) and all(
            newest > began for stage in collector.newest_us.values() for newest in stage
        )

    try:
        cluster.wait(at_work, RECOVERS_WITHIN, f"back at work after {name}", every=0.2)
    except NotRecovered:
        log.error("not recovered: %s", state_of(scene))
        raise
    seconds = (cluster.clock.wall_us() - began) / 1e6
    cluster.recorder.record(Figure(began, f"recovery_s {name}", seconds))
    if (leader := cluster.leader()) is not None:
        cluster.recorder.record(Leader(cluster.clock.wall_us(), leader.node, leader.token))


def state_of(scene: Scene) -> str:
    """Who runs, and how far behind each stage is."""
    cluster, collector = scene.cluster, scene.collector
    now = cluster.clock.wall_us()
    away = [node for node in cluster.nodes if not cluster.at_work(node)]
    stages = ", ".join(
        f"{name} {' '.join(f'{(now - at) / 1e6:.1f}' for at in newest)} s old"
        for name, newest in collector.newest_us.items()
    )
    return f"leader {cluster.leader()}, not at work: {away or 'none'}; newest {stages}"
