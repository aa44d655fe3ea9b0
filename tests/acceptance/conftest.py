"""One whole system for the stories: capture, two coordinators, streams, mover, sink, worker."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from coordinator.election import read_leader
from tests.support.endpoints import Endpoints
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from tests.support.receiver import Receiver


@dataclass
class System:
    """A running installation, and a target for its http jobs."""

    installation: TestInstallation
    receiver: Receiver
    status_port: int

    def insert(self, name: str, **columns: Any) -> int:
        """Define a job as a user would; returns its id."""
        given = {"name": name, **columns}
        if isinstance(given.get("payload"), dict):
            given["payload"] = json.dumps(given["payload"])
        names, marks = ", ".join(given), ", ".join(["%s"] * len(given))
        rows = self.sql(
            f"INSERT INTO cronstream.job_definitions ({names}) VALUES ({marks}) RETURNING job_id", *given.values()
        )
        return int(rows[0][0])

    def sql(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement in a transaction of its own."""
        with self.installation.connect() as connection:
            done = connection.execute(statement, parameters)  # type: ignore[arg-type]
            return done.fetchall() if done.description else []

    def runs(self, job_id: int) -> list[dict[str, Any]]:
        """The job's rows in history, oldest first."""
        columns = "scheduled_time, attempt, outcome, reason, error, output, worker, fencing_token, tenant, name"
        rows = self.sql(
            f"SELECT {columns} FROM cronstream.job_runs WHERE job_id = %s ORDER BY scheduled_time, attempt", job_id
        )
        return [dict(zip(columns.split(", "), row, strict=True)) for row in rows]

    def await_runs(self, job_id: int, count: int, within: float = 30) -> list[dict[str, Any]]:
        """The job's history once it has that many rows."""
        return eventually(
            lambda: found if len(found := self.runs(job_id)) >= count else None,
            within=within,
            every=0.1,
            says=f"{count} runs of job {job_id} in history",
        )

    def status(self, path: str) -> tuple[int, Any]:
        """Ask a streams process: (HTTP status, JSON)."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.status_port}{path}", timeout=5) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, None


def _free_port() -> int:
    import socket

    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port: int = chosen.getsockname()[1]
        return port


@pytest.fixture(scope="package")
def system(stack: Endpoints) -> Iterator[System]:
    """Everything running, the leader elected and capture streaming."""
    with TestInstallation.made(stack) as installation, Receiver() as receiver:
        port = _free_port()
        installation.start("connectors", "capture")
        installation.start("coordinator", "c1")
        installation.start("coordinator", "c2")
        installation.start("streams", "streams1", status_port=port)
        installation.start("streams.mover", "mover1")
        installation.start("streams.sink", "sink1")
        installation.start("workers", "worker1", command_enabled=True)
        made = System(installation, receiver, port)
        try:
            eventually(lambda: read_leader(stack.etcd, f"/{installation.name}"), within=30, says="a leader")
            canary = made.insert("canary", every="1 second", handler="log")
            made.await_runs(canary, 1, within=90)
            eventually(lambda: made.status(f"/jobs/{canary}")[0] == 200, within=30, says="the status page answers")
            made.sql("DELETE FROM cronstream.job_definitions WHERE job_id = %s", canary)
        except BaseException:
            for node, text in installation.last_lines().items():
                print(f"---- {node}\n{text}")
            raise
        yield made
