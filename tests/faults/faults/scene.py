"""What a fault may touch, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from stack import servers
from stack.errors import StackError
from tests.faults.cluster import Cluster
from tests.faults.collector import Collector
from tests.faults.workload import Workload


class Missed(Exception):
    """The fault could not be brought about, or was not seen to hit; the text says why."""


@dataclass(frozen=True)
class Hit:
    """What was disturbed, and what was seen of it."""

    target: str
    detail: str = ""


@dataclass
class Scene:
    """The running system and the dice."""

    cluster: Cluster
    workload: Workload
    collector: Collector
    random: Random
    longest_pause: float = 12.0
    """Seconds of the longest SIGSTOP."""
    longest_outage: float = 10.0
    """Seconds for which a server is away."""

    def role(self, role: str) -> str:
        """A node of that role: leader and standby as they are now, any other by lot."""
        if role in ("leader", "standby"):
            leader = self.cluster.leading_node()
            others = [node for node in self.cluster.of("coordinator") if node != leader]
            return leader if role == "leader" else others[0]
        return self.random.choice(self.cluster.of(MODULES[role]))

    def sleep(self, least: float, most: float) -> float:
        """So long, by lot; returns how long it was."""
        seconds = self.random.uniform(least, max(least, most))
        self.cluster.clock.sleep(seconds)
        return seconds

    def wait(self, condition: Callable[[], bool], seconds: float, what: str, every: float = 0.02) -> None:
        """Until it holds. Raises Missed."""
        deadline = self.cluster.clock.boot_ns() + round(seconds * 1e9)
        while not condition():
            if self.cluster.clock.boot_ns() > deadline:
                raise Missed(f"not within {seconds:.0f} s: {what}")
            self.cluster.clock.sleep(every)

    def bring(self, *names: str) -> None:
        """Start servers on their data, together, and wait until they are ready: twice as long as usual, if need be.

        On a busy machine a broker that reads its logs after a crash takes more than a minute.
        """
        home = self.cluster.home
        for name in names:
            servers.launch(home, name)
        for name in names:
            try:
                servers.wait_ready(home, name)
            except StackError:
                servers.start(home, name)

    def another_leads(self, node: str) -> bool:
        """Whether somebody else holds the leader key."""
        leader = self.cluster.leader()
        return leader is not None and leader.node != node


Disturb = Callable[[Scene], Hit]

MODULES = {
    "capture": "connectors",
    "streams": "streams",
    "worker": "workers",
    "sink": "streams.sink",
    "mover": "streams.mover",
    "commands": "streams.commands",
}
"""The module of each role that is no coordinator's."""
