"""A coordinator cut off from one server alone: silently, as a partition does, or with its connections reset."""

from __future__ import annotations

from functools import partial

from tests.faults.faults.scene import Disturb, Hit, Missed, Scene
from tests.faults.links import State

SERVERS = ("etcd", "kafka", "postgres")


def cut(role: str, server: str, state: State, scene: Scene) -> Hit:
    """For a while; then all goes on, what was held back included."""
    node = scene.role(role)
    link = scene.cluster.links[node, server]
    link.cut(state)
    try:
        seconds = scene.sleep(2, scene.longest_pause)
    finally:
        link.heal()
    if not link.held:
        raise Missed(f"nothing passed between {node} and {server} in {seconds:.1f} s")
    return Hit(f"{node} to {server}", f"{state} for {seconds:.1f} s")


def standby_cut_off(scene: Scene) -> Hit:
    """A standby that cannot ask etcd is no leader: who led goes on leading."""
    leader = scene.cluster.leader()
    node = scene.role("standby")
    link = scene.cluster.links[node, "etcd"]
    link.cut("broken")
    try:
        seconds = scene.sleep(4, scene.longest_pause)
        now = scene.cluster.leader()
    finally:
        link.heal()
    if leader is None or now is None or now.token != leader.token:
        raise Missed(f"the leader changed from {leader} to {now} meanwhile")
    return Hit(f"{node} to etcd", f"broken for {seconds:.1f} s, {now.node} led on under token {now.token}")


FAULTS: dict[str, Disturb] = {
    **{f"cut leader from {server}": partial(cut, "leader", server, "silent") for server in SERVERS},
    **{f"reset leader's {server}": partial(cut, "leader", server, "broken") for server in SERVERS},
    "cut standby from etcd": standby_cut_off,
}
