"""A process cut off from one server alone: silently, as a partition does, or with its connections reset."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tests.faults.faults.scene import Disturb, Hit, Missed, Scene
from tests.faults.links import Link, State

SERVERS = ("etcd", "kafka", "postgres")
"""A leader's."""
KAFKAS = ("streams", "worker", "mover", "sink", "commands")
TABLES = ("sink", "commands", "capture")


def cut(role: str, server: str, state: State, scene: Scene) -> Hit:
    """For a while; then all goes on, what was held back included."""
    node = scene.role(role)
    seconds = _cut(scene, scene.cluster.links[node, server], state)
    return Hit(f"{node} to {server}", f"{state} for {seconds:.1f} s")


def cut_from_member(scene: Scene) -> Hit:
    """The leader no longer hears the member of etcd that it speaks to; the others go on answering."""
    leader = scene.cluster.leader()
    node = scene.role("leader")
    link = max(scene.cluster.links[node, "etcd"], key=lambda link: link.connections)
    seconds = _cut(scene, (link,), "silent")
    now = scene.cluster.leader()
    went_on = leader is not None and now is not None and now.token == leader.token
    return Hit(link.name, f"silent for {seconds:.1f} s, {'it led on' if went_on else f'led by {now} now'}")


def standby_cut_off(scene: Scene) -> Hit:
    """A standby that cannot ask etcd is no leader: who led goes on leading."""
    leader = scene.cluster.leader()
    node = scene.role("standby")
    links = scene.cluster.links[node, "etcd"]
    for link in links:
        link.cut("broken")
    try:
        seconds = scene.sleep(4, scene.longest_pause)
        now = scene.cluster.leader()
    finally:
        for link in links:
            link.heal()
    if leader is None or now is None or now.token != leader.token:
        raise Missed(f"the leader changed from {leader} to {now} meanwhile")
    return Hit(f"{node} to etcd", f"broken for {seconds:.1f} s, {now.node} led on under token {now.token}")


def _cut(scene: Scene, links: Sequence[Link], state: State) -> float:
    for link in links:
        link.cut(state)
    try:
        seconds = scene.sleep(2, scene.longest_pause)
    finally:
        for link in links:
            link.heal()
    if not any(link.held for link in links):
        raise Missed(f"nothing passed: {', '.join(link.name for link in links)} in {seconds:.1f} s")
    return seconds


def _of(role: str) -> str:
    return f"{role}'" if role.endswith("s") else f"{role}'s"


FAULTS: dict[str, Disturb] = {
    **{f"cut leader from {server}": partial(cut, "leader", server, "silent") for server in SERVERS},
    **{f"reset leader's {server}": partial(cut, "leader", server, "broken") for server in SERVERS},
    **{f"cut {role} from kafka": partial(cut, role, "kafka", "silent") for role in KAFKAS},
    **{f"reset {_of(role)} kafka": partial(cut, role, "kafka", "broken") for role in KAFKAS},
    **{f"cut {role} from postgres": partial(cut, role, "postgres", "silent") for role in TABLES},
    **{f"reset {_of(role)} postgres": partial(cut, role, "postgres", "broken") for role in TABLES},
    "cut leader from etcd's member": cut_from_member,
    "cut standby from etcd": standby_cut_off,
}
