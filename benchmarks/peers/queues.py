"""Task queues beside our attempts: a no-op, queued by one process while idle workers take it, until all have run.

Ours goes the same way: from a trigger's instant through admission to a worker.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import installation
from benchmarks.peers.processes import Fires, Times, interpreter, python, redis, running, spawn
from benchmarks.peers.schedulers import Fire
from stack.home import Home

_STARTED_S = 6.0
"""How long workers may take to be up and idle."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One task queue; its instant is when the first task is queued."""

    name: str
    run: Fire
    tasks: int
    """How many, so that it takes some seconds."""


def _procrastinate(home: Home, size: int, watch: float, patience: float) -> tuple[float, Times]:
    with installation.database(home) as database:
        at = float(int(time.time() + _STARTED_S * patience))
        dsn = installation.postgres_dsn(home, database)
        return at, python("procrastinate_peer", ["queue", size, at, at + watch], {"PEER_DSN": dsn})


def _on_redis(script: str, workers: Sequence[str]) -> Fire:
    def run(home: Home, size: int, watch: float, patience: float) -> tuple[float, Times]:
        fires = Fires()
        with redis() as port:
            extra = {"PEER_REDIS": f"redis://127.0.0.1:{port}/0", "PEER_FILE": str(fires.prefix)}
            with running([[*interpreter(), *workers]], extra):
                at = float(int(time.time() + _STARTED_S * patience))
                sender = spawn([*interpreter(), f"{script}.py", "send", str(size), str(at)], extra)
                try:
                    return at, fires.until(size, at + watch)
                finally:
                    sender.kill()
                    sender.wait()

    return run


QUEUES = (
    Queue(
        "celery",
        _on_redis(
            "redbeat_peer",
            ["-m", "celery", "-A", "redbeat_peer", "worker", "--loglevel=ERROR", "--concurrency=2", "--without-gossip"],
        ),
        5_000,
    ),
    Queue("dramatiq", _on_redis("dramatiq_peer", ["-m", "dramatiq", "dramatiq_peer", "-p", "2", "-t", "8"]), 10_000),
    Queue("procrastinate", _procrastinate, 3_000),
)
