"""The system under test: real servers and two of each process, in a folder of their own.

A keeper starts again what ended by itself, as any process manager would; what
the nemesis takes down stays down until it says so. Each coordinator reaches
Postgres, Kafka and each of the three members of etcd by links of its own (links.py), every
other process its servers, and Connect Postgres. Where it is allowed, what streams processes,
Postgres and Kafka write lies on small disks of its own (disks.py).
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import sql

from coordinator.election import Leader, read_leader
from coordinator.etcd import EtcdUnavailable
from cronstream.clock import SystemClock
from cronstream.topics import Topics
from stack import ports, process, runas, servers, services
from stack.home import DATABASE, ROLE, Home
from stack.paths import CHECKOUT, VENV_PYTHON
from stack.services import Service
from tests.faults import events
from tests.faults.disks import Disk, can_mount, unmount_below
from tests.faults.history import Recorder
from tests.faults.links import Link, Links

T = TypeVar("T")

log = logging.getLogger("faults")

INSTALLATION = "cronstream"
LINKED = {
    "coordinator-1": ("kafka", "postgres", "etcd"),
    "coordinator-2": ("kafka", "postgres", "etcd"),
    "streams-1": ("kafka",),
    "streams-2": ("kafka",),
    "worker-1": ("kafka",),
    "worker-2": ("kafka",),
    "mover": ("kafka",),
    "mover-2": ("kafka",),
    "history": ("kafka", "postgres"),
    "commands": ("kafka", "postgres"),
    "capture": ("postgres",),
}
"""By node, the servers that it reaches by links of its own; capture's is Connect's way to Postgres."""
DOORS = {node: f"DOOR{n}" for n, node in enumerate((node for node in LINKED if "kafka" in LINKED[node]), 1)}
"""By node, the listener of Kafka that it is sent to: what Kafka advertises there is the link."""
ETCD_MEMBERS = 3
_NODES = (
    Service("capture", "connectors"),
    Service("coordinator-1", "coordinator", page="/health"),
    Service("coordinator-2", "coordinator", page="/health"),
    Service("streams-1", "streams", page="/health"),
    Service("streams-2", "streams", page="/health"),
    Service("history", "streams.sink"),
    Service("worker-1", "workers"),
    Service("worker-2", "workers"),
    Service("mover", "streams.mover"),
    Service("mover-2", "streams.mover"),
    Service("commands", "streams.commands"),
)
KEEPER_SECONDS = 0.3
TABLES, KAFKA_LOGS = "postgres", "kafka"
"""The small disks of servers; those of streams processes are named as they are."""
_MEGABYTES = {TABLES: 1024, KAFKA_LOGS: 2048}
_MEGABYTES_OF_A_NODE = 512


class NotRecovered(Exception):
    """The system did not come back by itself after a fault was over."""


class Cluster:
    """Servers, processes, links; and the ways to disturb and to ask them."""

    def __init__(self, folder: Path, recorder: Recorder) -> None:
        self.home = Home(folder, doors=tuple(DOORS.values()), etcd_members=ETCD_MEMBERS)
        self.clock = SystemClock()
        self.topics = Topics(INSTALLATION)
        self.recorder = recorder
        self.nodes = {node.name: node for node in _NODES if importlib.util.find_spec(node.module) is not None}
        self.links: dict[tuple[str, str], tuple[Link, ...]] = {}
        """By (node, server): one, or for a coordinator's etcd one to each member."""
        self.disks: dict[str, Disk] = {}
        """By whose they are; none where nothing can be mounted."""
        self.settings_of_coordinators: dict[str, str] = {}
        """Beyond what the home says."""
        self._relays = Links()
        self._up: set[str] = set()
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)

    # ---- all of it -----------------------------------------------------------------------------

    @contextmanager
    def running(self) -> Iterator[None]:
        """Fresh servers, then every process; all gone and wiped at the end."""
        unmount_below(self.home.path)
        servers.down(self.home, wipe=True)
        try:
            self._mount()
            servers.up(self.home, quiet=True)
            self._move_tables()
            self._link()
            services.setup(self.home, self.settings_of("capture"))
            for name in self.nodes:
                self.start(name)
            self._keeper.start()
            yield
        finally:
            self._over.set()
            if self._keeper.is_alive():
                self._keeper.join(10)
            for name in self.nodes:
                self._signal(name, signal.SIGCONT)
            services.down(self.home)
            servers.down(self.home)
            self._relays.close()
            unmount_below(self.home.path)

    def _mount(self) -> None:
        if not can_mount():
            log.warning("nothing can be mounted here: no disk is filled")
            return
        self.home.create()
        folders = {
            TABLES: self.home.path / "tables",
            KAFKA_LOGS: self.home.path / "kafka" / "log",
            **{node: services.data_folder(self.home, self.nodes[node]) for node in self.of("streams")},
        }
        for name, folder in folders.items():
            self.disks[name] = Disk(folder, _MEGABYTES.get(name, _MEGABYTES_OF_A_NODE))

    def _move_tables(self) -> None:
        """The database goes to the small disk, Postgres' log of transactions stays on the large one."""
        if TABLES not in self.disks:
            return
        folder = self.disks[TABLES].folder
        runas.own(folder)
        with contextlib.closing(self.connect(superuser=True, dbname="postgres")) as connection:
            connection.execute(sql.SQL("CREATE TABLESPACE small LOCATION {}").format(str(folder)))
            connection.execute(sql.SQL("ALTER DATABASE {} SET TABLESPACE small").format(sql.Identifier(DATABASE)))

    def _link(self) -> None:
        for node, servers_of_it in LINKED.items():
            for server in servers_of_it:
                self.links[node, server] = tuple(self._links_to(node, server))

    def _links_to(self, node: str, server: str) -> Iterator[Link]:
        if server == "kafka":
            yield self._relay(node, "kafka", f"{DOORS[node]}-outside", DOORS[node])
        else:
            for member in self.home.etcd_members if server == "etcd" else (server,):
                yield self._relay(node, member, f"{node}-{member}", member)

    def _relay(self, node: str, server: str, outside: str, inside: str) -> Link:
        return self._relays.make(f"{node} to {server}", self.home.port(outside), self.home.port(inside))

    def settings_of(self, node: str) -> dict[str, str]:
        """What a node is told beyond what the home says: its links."""
        at = {
            server: [f"127.0.0.1:{link.port}" for link in links]
            for (from_node, server), links in self.links.items()
            if from_node == node
        }
        settings = dict(self.settings_of_coordinators) if node in self.of("coordinator") else {}
        if "kafka" in at:
            settings["CRONSTREAM_KAFKA"] = ",".join(at["kafka"])
        if "etcd" in at:
            settings["CRONSTREAM_ETCD"] = ",".join(at["etcd"])
        if node in self.of("connectors"):
            settings["CRONSTREAM_CAPTURE_POSTGRES_HOST"], settings["CRONSTREAM_CAPTURE_POSTGRES_PORT"] = at["postgres"][
                0
            ].split(":")
        elif "postgres" in at:
            port = self.links[node, "postgres"][0].port
            settings["CRONSTREAM_POSTGRES"] = f"host=127.0.0.1 port={port} dbname={DATABASE} user={ROLE}"
        return settings

    # ---- processes -----------------------------------------------------------------------------

    def of(self, module: str) -> list[str]:
        """The nodes of one kind of process."""
        return [node.name for node in self.nodes.values() if node.module == module]

    def start(self, name: str, variables: Mapping[str, str] | None = None, *, keep: bool = True) -> None:
        """Start a process and keep it running from now on; ``variables`` are of this start alone."""
        with self._lock:
            services.start(self.home, self.nodes[name], {**self.settings_of(name), **(variables or {})})
            if keep:
                self._up.add(name)
        self._note(name, "started")

    def pid(self, name: str) -> int | None:
        identity = process.running(self.home.pid_file(name))
        return identity.pid if identity else None

    def kill(self, name: str) -> None:
        """SIGKILL; it stays down until it is started."""
        with self._lock:
            self._up.discard(name)
            self._note(name, "killed")
            services.kill(self.home, name)

    def terminate(self, name: str) -> None:
        """SIGTERM, and wait until it has ended; it stays down until it is started."""
        with self._lock:
            self._up.discard(name)
            services.stop(self.home, name)
        self._note(name, "stopped")

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self._signal(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self._signal(name, signal.SIGCONT)

    def died(self, name: str) -> None:
        """Note that a process was seen to have ended by itself."""
        self._note(name, "died")

    def _signal(self, name: str, number: signal.Signals) -> None:
        if identity := process.running(self.home.pid_file(name)):
            process.send(identity, number)

    def _note(self, name: str, why: str) -> None:
        self.recorder.record(events.Process(self.clock.wall_us(), name, why))

    def _keep(self) -> None:
        while not self._over.wait(KEEPER_SECONDS):
            with self._lock:
                ended = [name for name in self._up if not self.home.is_running(name)]
                for name in ended:
                    self._note(name, "died")
                    self.start(name)

    # ---- asking --------------------------------------------------------------------------------

    def leader(self) -> Leader | None:
        """Who leads, as etcd says by the run's own connection; None also while etcd is away."""
        try:
            return read_leader(self.home.environment()["CRONSTREAM_ETCD"], f"/{INSTALLATION}")
        except EtcdUnavailable:
            return None

    def leading_node(self) -> str:
        """The node that leads; waits for one."""
        return self.wait(self.leader, 60, "a leader").node

    def wait(self, ask: Callable[[], T | None], seconds: float, what: str, every: float = 0.1) -> T:
        """The first truthy answer. Raises NotRecovered, naming ``what``."""
        deadline = self.clock.boot_ns() + round(seconds * 1e9)
        while not (answer := ask()):
            if self.clock.boot_ns() > deadline:
                raise NotRecovered(f"not within {seconds:.0f} s: {what}")
            self.clock.sleep(every)
        return answer

    def connect(self, *, superuser: bool = False, **kwargs: Any) -> psycopg.Connection[Any]:
        """A user's connection to Postgres; autocommit unless told otherwise."""
        secret, user = ("postgres_superuser_password", "postgres") if superuser else ("postgres_password", ROLE)
        dsn = (
            f"host=127.0.0.1 port={self.home.port('postgres')} dbname={DATABASE} user={user} "
            f"password={self.home.secret(secret)} connect_timeout=3"
        )
        return psycopg.connect(dsn, **{"autocommit": True, **kwargs})

    def query(self, statement: str, parameters: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Rows of one statement."""
        with contextlib.closing(self.connect()) as connection:
            done = connection.execute(statement, parameters)
            return done.fetchall() if done.description else []

    def cli(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``cronstream …``, as an operator would."""
        return subprocess.run(
            [str(VENV_PYTHON), "-m", "cli", *arguments],
            cwd=CHECKOUT,
            env={**self.home.environment(), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def at_work(self, name: str) -> bool:
        """Its page answers; a process without pages is alive."""
        node = self.nodes[name]
        if not self.home.is_running(name):
            return False
        return node.page is None or ports.serves(self.home.port(name), node.page)
