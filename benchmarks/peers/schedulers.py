"""Each peer's scheduler: so many jobs due at one instant, and when each of them fired."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import installation
from benchmarks.leading import TooLate
from benchmarks.peers import environment
from benchmarks.peers.processes import HERE as FOLDER
from benchmarks.peers.processes import (
    TOO_LATE,
    Fires,
    Times,
    interpreter,
    python,
    redis,
    running,
    until_written,
    variables,
)
from stack.home import Home

Fire = Callable[[Home, int, float, float], tuple[float, Times]]
"""(servers, size, seconds to watch, patience) to the instant in seconds since the epoch, and the fires.

Patience stretches the time for the set-up, 1 on a quiet machine. Raises TooLate when it did not suffice."""


_PATIENCE = (1.0, 3.0, 10.0)
_STARTED_S = 6.0
_BEAT_S = 3.0
"""Of it, what beat takes to be up."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One way of running one scheduler."""

    name: str
    does: str
    """dispatch: it hands jobs to a queue; execute: a worker runs them; both: it runs them itself."""
    fire: Fire
    sizes: tuple[int, ...]
    """What the usual run asks of it; the full one asks all for every size."""


def patiently(fire: Callable[[float], tuple[float, Times]]) -> tuple[float, Times]:
    """Again with more patience while the set-up takes too long. Raises TooLate."""
    for patience in _PATIENCE[:-1]:
        try:
            return fire(patience)
        except TooLate as late:
            print(f"  {late}: again, with more time", flush=True)
    return fire(_PATIENCE[-1])


def _instant(size: int, per_job_us: float, patience: float) -> float:
    """A whole second after the set-up of so many jobs."""
    return float(int(time.time() + patience * (_STARTED_S + size * per_job_us / 1e6)))


def _apscheduler(home: Home, size: int, watch: float, patience: float) -> tuple[float, Times]:
    at = _instant(size, 250, patience)
    with installation.database(home) as database:
        url = (
            f"postgresql+psycopg2://cronstream:{home.secret('postgres_password')}@127.0.0.1:{home.port('postgres')}/"
            f"{database}"
        )
        return at, python("apscheduler_peer", [size, at, at + watch], {"PEER_URL": url})


def _procrastinate(mode: str) -> Fire:
    def fire(home: Home, size: int, watch: float, patience: float) -> tuple[float, Times]:
        at = _instant(size, 250, patience)  # it asks croniter twice for each task before it waits
        with installation.database(home) as database:
            dsn = installation.postgres_dsn(home, database)
            return at, python("procrastinate_peer", [mode, size, at, at + watch], {"PEER_DSN": dsn})

    return fire


def _java(kind: str) -> Fire:
    def fire(home: Home, size: int, watch: float, patience: float) -> tuple[float, Times]:
        at = _instant(size, 120, patience)
        with installation.database(home) as database:
            url = f"jdbc:postgresql://127.0.0.1:{home.port('postgres')}/{database}"
            path = ":".join(str(Path(part).absolute()) for part in environment.class_path().split(":"))
            argv = ["java", "-Xmx1g", "-cp", path, "peers.Main", kind, str(size)]
            argv += [str(int(at * 1000)), str(int((at + watch) * 1000))]
            return at, until_written(argv, {"JDBC_URL": url, "PGPASSWORD": home.secret("postgres_password")})

    return fire


def _redbeat(mode: str) -> Fire:
    def fire(home: Home, size: int, watch: float, patience: float) -> tuple[float, Times]:
        fires = Fires()
        with redis() as port:
            extra = {"PEER_REDIS": f"redis://127.0.0.1:{port}/0", "PEER_FILE": str(fires.prefix)}
            at = _instant(size, 700, patience)
            load = [*interpreter(), "redbeat_peer.py", "load", str(size), str(at)]
            subprocess.run(load, cwd=FOLDER, env=variables(extra), check=True)
            if time.time() > at - _BEAT_S:
                raise TooLate(TOO_LATE)
            celery = [*interpreter(), "-m", "celery", "-A", "redbeat_peer"]
            programs = [[*celery, "beat", "--loglevel=ERROR", "--pidfile="]]
            if mode == "execute":
                programs.append([*celery, "worker", "--loglevel=ERROR", "--concurrency=2", "--without-gossip"])
            with running(programs, extra):
                if mode == "execute":
                    return at, fires.until(size, at + watch)
                return at, _queue_lengths(port, size, at + watch)

    return fire


def _queue_lengths(port: int, size: int, until: float) -> Times:
    """When the queue became so long, looked at a hundred times a second."""
    times: list[int] = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while time.time() < until and len(times) < size:
            time.sleep(0.01)
            connection.sendall(b"LLEN celery\r\n")
            length = int(connection.recv(64)[1:].split(b"\r")[0])
            times += [time.time_ns() // 1000] * (length - len(times))
    return np.array(times, np.int64)


PEERS = (
    Peer("apscheduler", "both", _apscheduler, (10_000,)),
    Peer("redbeat", "dispatch", _redbeat("dispatch"), (10_000,)),
    Peer("redbeat", "execute", _redbeat("execute"), ()),
    Peer("procrastinate", "dispatch", _procrastinate("dispatch"), (10_000,)),
    Peer("procrastinate", "execute", _procrastinate("execute"), ()),
    Peer("db-scheduler", "both", _java("db-scheduler"), (100_000,)),
    Peer("quartz", "both", _java("quartz"), (1_000,)),
)
