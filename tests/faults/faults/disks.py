"""No space left on device: for the tables of a streams process, for Postgres' tables, for Kafka's logs."""

from __future__ import annotations

from functools import partial

from stack import servers
from tests.faults.cluster import KAFKA_LOGS, TABLES
from tests.faults.disks import can_mount
from tests.faults.faults.scene import Disturb, Hit, Missed, Scene

_SAID = b"No space left on device"


def full(role: str, scene: Scene) -> Hit:
    """The disk of a node of that role has no room for a while; whoever writes there must be told so meanwhile."""
    node = scene.role(role)
    return _full(scene, node, f"{node}.log")


def postgres_full(scene: Scene) -> Hit:
    """Tables and indexes cannot grow; the log of transactions can."""
    return _full(scene, TABLES, "postgres.log")


def kafka_full(scene: Scene) -> Hit:
    """A broker that cannot write ends; it is started once there is room again."""
    home = scene.cluster.home
    try:
        hit = _full(scene, KAFKA_LOGS, "kafka.log")
        scene.wait(lambda: not home.is_running("kafka"), 30, "the broker ends", every=0.1)
    finally:
        servers.kill(home, "kafka")
        scene.bring("kafka")
    return hit


def _full(scene: Scene, name: str, log_name: str) -> Hit:
    disk, log = scene.cluster.disks[name], scene.cluster.home.logs / log_name
    said_before = log.stat().st_size
    disk.fill()
    try:
        seconds = scene.sleep(scene.longest_outage / 2, scene.longest_outage)
    finally:
        disk.free()
    with log.open("rb") as lines:
        lines.seek(said_before)
        times = lines.read().count(_SAID)
    if not times:
        raise Missed(f"nobody missed room for {name} in {seconds:.1f} s")
    return Hit(name, f"full for {seconds:.1f} s, said {times} times")


FAULTS: dict[str, Disturb] = (
    {
        "fill the streams' disk": partial(full, "streams"),
        "fill postgres' disk": postgres_full,
        "fill kafka's disk": kafka_full,
    }
    if can_mount()
    else {}
)
