"""etcd of three members: one is lost, two are, all are; its data too, or the lease of the leader."""

from __future__ import annotations

import base64
import http.client
import json
import shutil
import signal
from collections.abc import Sequence
from typing import Any

from stack import etcd as members
from stack import process, servers
from tests.faults.cluster import INSTALLATION
from tests.faults.faults.scene import Disturb, Hit, Missed, Scene


def restart(scene: Scene) -> Hit:
    """One member after the other, in order, on the same data: as an operator brings a new version."""
    for name in scene.cluster.home.etcd_members:
        servers.restart(scene.cluster.home, name)
    return Hit("etcd", "each member in turn")


def crash(scene: Scene) -> Hit:
    """SIGKILL of all members, away for a while, then back on the same data."""
    return Hit("etcd", f"away for {_away(scene, scene.cluster.home.etcd_members):.1f} s")


def kill_leader(scene: Scene) -> Hit:
    """SIGKILL of the member that leads: the two others agree on a new one."""
    leading = _leading(scene)
    servers.kill(scene.cluster.home, leading)
    try:
        scene.wait(lambda: members.leading(scene.cluster.home) not in (None, leading), 20, "another member leads etcd")
        scene.sleep(0.5, scene.longest_outage)
        followed = members.leading(scene.cluster.home)
    finally:
        scene.bring(leading)
    return Hit(leading, f"followed by {followed}")


def pause_leader(scene: Scene) -> Hit:
    """SIGSTOP of the member that leads: its connections stay open and nothing answers."""
    home = scene.cluster.home
    leading = _leading(scene)
    identity = process.running(home.pid_file(leading))
    assert identity is not None
    process.send(identity, signal.SIGSTOP)
    try:
        seconds = scene.sleep(2, scene.longest_pause)
    finally:
        process.send(identity, signal.SIGCONT)
    return Hit(leading, f"stopped for {seconds:.1f} s")


def no_quorum(scene: Scene) -> Hit:
    """Two of three are gone: the one that is left answers nothing."""
    gone = scene.random.sample(scene.cluster.home.etcd_members, 2)
    return Hit("etcd", f"without {' and '.join(gone)} for {_away(scene, gone):.1f} s")


def revoke_lease(scene: Scene) -> Hit:
    """As a person with etcdctl would."""
    leader = scene.role("leader")
    key = base64.b64encode(f"/{INSTALLATION}/leader".encode()).decode()
    found = _ask(scene, "kv/range", {"key": key}).get("kvs")
    if not found:
        raise Missed("there was no leader key")
    _ask(scene, "lease/revoke", {"ID": found[0]["lease"]})
    return Hit(leader)


def wipe(scene: Scene) -> Hit:
    """All data lost; the operator adopts the new etcd, as the log says."""
    home = scene.cluster.home
    for name in home.etcd_members:
        servers.kill(home, name)
        shutil.rmtree(home.path / name)
    scene.bring(*home.etcd_members)
    said: list[str] = []

    def adopted() -> bool:
        done = scene.cluster.cli("adopt-etcd", "--yes")
        said.append((done.stdout + done.stderr).strip())
        return done.returncode == 0

    scene.wait(adopted, 60, "the new etcd is adopted", every=0.5)
    return Hit("etcd", said[-1])


def _leading(scene: Scene) -> str:
    leading = members.leading(scene.cluster.home)
    if leading is None:
        raise Missed("etcd had no leader")
    return leading


def _away(scene: Scene, names: Sequence[str]) -> float:
    for name in names:
        servers.kill(scene.cluster.home, name)
    try:
        return scene.sleep(0.5, scene.longest_outage)
    finally:
        scene.bring(*names)


def _ask(scene: Scene, call: str, body: dict[str, Any]) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", scene.cluster.home.port("etcd"), timeout=5)
    try:
        connection.request("POST", f"/v3/{call}", json.dumps(body))
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer
    finally:
        connection.close()


FAULTS: dict[str, Disturb] = {
    "restart etcd": restart,
    "crash etcd": crash,
    "kill etcd's leader": kill_leader,
    "pause etcd's leader": pause_leader,
    "etcd without quorum": no_quorum,
    "revoke the lease": revoke_lease,
    "wipe etcd": wipe,
}
