"""Servers of the benchmarks' own under .local/bench/stack, and fresh installations on them."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeVar

import psycopg
from confluent_kafka import Consumer, KafkaException, TopicPartition

from benchmarks.report import FOLDER
from cli.topics import make_topics
from connectors.config import connector_name, slot_name
from connectors.connect_api import ConnectApi
from cronstream.settings import CaptureSettings, Installation, read_settings
from sql.migrate import migrate
from stack import ports, process, servers
from stack.home import Home

Model = TypeVar("Model", bound=Installation)
ROOT = Path(__file__).parents[1]
HOME = FOLDER / "stack"


class BenchError(Exception):
    """What was to be measured did not come about; the message says what was seen."""


class Stack:
    """Postgres, etcd, Kafka and Connect: wiped and started when first asked for, down at the end."""

    def __init__(self) -> None:
        self._home: Home | None = None
        self._lock: TextIO | None = None

    @property
    def home(self) -> Home:
        """The home of the running servers."""
        if self._home is None:
            self._lock = (FOLDER / "lock").open("w")
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RuntimeError("benchmarks already run in this checkout") from None
            self._home = Home(HOME)
            servers.down(self._home, wipe=True)
            servers.up(self._home, quiet=True)
        return self._home

    def close(self) -> None:
        """Stop what was started."""
        if self._home is not None:
            servers.down(self._home)
            self._home = None


STACK = Stack()
"""One a run; each scenario has an installation of its own on it."""


def server_pids(home: Home) -> dict[str, int]:
    """The running servers."""
    found = {name: process.running(home.pid_file(name)) for name in servers.SERVERS}
    return {name: identity.pid for name, identity in found.items() if identity is not None}


def postgres_dsn(home: Home, database: str = "cronstream") -> str:
    """A connection string with the password in it."""
    return (
        f"host=127.0.0.1 port={home.port('postgres')} dbname={database} user=cronstream "
        f"password={home.secret('postgres_password')}"
    )


@contextmanager
def database(home: Home) -> Iterator[str]:
    """The name of a new, empty database; dropped afterwards."""
    name = f"bench_{uuid.uuid4().hex[:10]}"
    with psycopg.connect(postgres_dsn(home), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    try:
        yield name
    finally:
        with psycopg.connect(postgres_dsn(home), autocommit=True) as connection:
            until(lambda: _dropped(connection, name), within=60, every=0.5)


@dataclass
class Bench:
    """One installation. Processes started through it end with it."""

    home: Home
    name: str
    database: str
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    status_ports: dict[str, int] = field(default_factory=dict)

    @classmethod
    @contextmanager
    def made(cls, home: Home) -> Iterator[Bench]:
        """Database migrated, topics made; all of it gone afterwards."""
        name = f"b{uuid.uuid4().hex[:8]}"
        folder = FOLDER / "logs" / name
        folder.mkdir(parents=True, exist_ok=True)
        with database(home) as made_database:
            made = cls(home, name, made_database, folder)
            with made.connect() as connection:
                migrate(connection)
            settings = made.settings(Installation)
            make_topics(settings)
            _until_led(settings)
            try:
                yield made
            finally:
                made.end()

    @property
    def variables(self) -> dict[str, str]:
        """The environment of this installation's processes."""
        values = {**self.home.environment(), "CRONSTREAM_INSTALLATION": self.name}
        values["CRONSTREAM_POSTGRES"] = (
            f"host=127.0.0.1 port={self.home.port('postgres')} dbname={self.database} user=cronstream"
        )
        return values

    def settings(self, model: type[Model], **changes: object) -> Model:
        """Settings as a process of this installation reads them."""
        return read_settings(model, {**self.variables, **_variables(changes)})

    def connect(self, **kwargs: Any) -> psycopg.Connection[Any]:
        """A connection to the database, autocommit unless told otherwise."""
        return psycopg.connect(
            postgres_dsn(self.home, self.database), **{"autocommit": True, "options": "-c timezone=UTC", **kwargs}
        )

    def start(self, node: str, module: str, *arguments: str, **changes: object) -> int:
        """Start ``python -m module`` as that node; returns its process id."""
        self.status_ports[node] = ports.choose(self.status_ports.values())
        served = {"status_port": self.status_ports[node]} if module not in ("workers", "connectors") else {}
        data = {"data_dir": str(self.folder / node)} if module == "streams" else {}
        clean = {key: value for key, value in os.environ.items() if not key.startswith("CRONSTREAM_")}
        environment = {**clean, **self.variables, **_variables({"node": node, **served, **data, **changes})}
        with (self.folder / f"{node}.log").open("ab") as log:
            self.processes[node] = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.processes[node].pid

    def lead(self, node: str = "c1", **changes: object) -> int:
        """Start a recorded coordinator; its latenesses are in ``record(node)``."""
        return self.start(node, "benchmarks.leader", str(self.record(node)), **changes)

    def record(self, node: str = "c1") -> Path:
        """Where a recorded coordinator writes, but for the suffix."""
        return self.folder / node

    def figures(self, node: str = "c1") -> dict[str, Any]:
        """The /stats of a process; empty when it does not answer."""
        return self._asked(node, "stats")

    def health(self, node: str) -> list[Any]:
        """The open lanes of a streams process."""
        lanes: list[Any] = self._asked(node, "health").get("partitions", [])
        return lanes

    def _asked(self, node: str, page: str) -> dict[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.status_ports[node]}/{page}", timeout=2) as answer:
                found: dict[str, Any] = json.loads(answer.read())
                return found
        except (OSError, ValueError):
            return {}

    def until(self, ask: Callable[[], object], *, within: float, every: float = 0.05) -> None:
        """Ask until it is so. Raises BenchError, with last lines, when a process ends before or it takes too long."""
        deadline = time.monotonic() + within
        while not ask():
            ended = [node for node, running in self.processes.items() if running.poll() is not None]
            if ended or time.monotonic() > deadline:
                what = f"{', '.join(ended)} ended" if ended else f"not within {within:.0f} s"
                tails = "\n".join(f"{node}:\n{self.tail(node)}" for node in ended or self.processes)
                raise BenchError(f"{what}\n{tails}")
            time.sleep(every)

    def until_loaded(self, node: str = "c1", within: float = 120) -> float:
        """Wait until the leader has read its whole horizon; the seconds since it took office."""
        self.until(lambda: self.figures(node).get("loaded_through"), within=within, every=0.1)
        return float(self.figures(node)["seconds_in_office"])

    def tail(self, node: str) -> str:
        """The last lines of a process' log."""
        return process.tail(self.folder / f"{node}.log", 12)

    def stop(self, node: str) -> None:
        """SIGTERM, and wait."""
        running = self.processes.pop(node)
        running.terminate()
        try:
            running.wait(15)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()

    def kill(self, node: str) -> None:
        """SIGKILL."""
        running = self.processes.pop(node)
        running.kill()
        running.wait()

    def end(self) -> None:
        """Stop every process, drop the capture, if there was one."""
        for running in self.processes.values():
            running.terminate()
        captured = any("connectors" in node for node in self.processes)
        for node in list(self.processes):
            self.stop(node)
        if captured:
            settings = self.settings(CaptureSettings)
            ConnectApi(settings.connect or "").delete(connector_name(settings))
            with self.connect() as connection:
                until(lambda: _slot_gone(connection, slot_name(settings)), within=30, every=0.3)


class Poller:
    """Asks a coordinator's /stats four times a second."""

    def __init__(self, bench: Bench, node: str = "c1") -> None:
        self.answers: list[tuple[float, dict[str, Any]]] = []
        self._bench, self._node = bench, node
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.25):
            figures = self._bench.figures(self._node)
            if figures:
                self.answers.append((time.time(), figures))

    def close(self) -> list[tuple[float, dict[str, Any]]]:
        """Stop asking; the answers, each with the time it came."""
        self._stop.set()
        self._thread.join()
        return self.answers

    def ages(self) -> list[tuple[float, float]]:
        """When it was asked, and how old the oldest advance was that Postgres had not taken."""
        return [(at, figures.get("oldest_write_seconds", 0.0)) for at, figures in self.answers]


def until(ask: Callable[[], object], *, within: float, every: float = 0.05) -> None:
    """Ask until it is so. Raises BenchError."""
    deadline = time.monotonic() + within
    while not ask():
        if time.monotonic() > deadline:
            raise BenchError(f"not within {within:.0f} s")
        time.sleep(every)


def _until_led(settings: Installation) -> None:
    """A broker has made topics a while before it leads their partitions: wait, so that no process finds them so."""
    consumer = Consumer({"bootstrap.servers": settings.kafka, "group.id": "bench-led"})

    def led(place: TopicPartition) -> bool:
        try:
            consumer.get_watermark_offsets(place, timeout=5)
        except KafkaException:
            return False
        return True

    try:
        for spec in settings.topics.specs(settings.partitions):
            for partition in range(spec.partitions):
                until(partial(led, TopicPartition(spec.name, partition)), within=60, every=0.1)
    finally:
        consumer.close()


def _variables(changes: dict[str, object]) -> dict[str, str]:
    return {f"CRONSTREAM_{key.upper()}": str(value) for key, value in changes.items()}


def _dropped(connection: psycopg.Connection[Any], name: str) -> bool:
    try:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectInUse):
        return False
    return True


def _slot_gone(connection: psycopg.Connection[Any], slot: str) -> bool:
    try:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [slot]
        )
    except psycopg.errors.ObjectInUse:
        return False
    return True
