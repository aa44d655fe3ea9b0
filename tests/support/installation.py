"""A fresh installation on the shared servers: its own names, topics, database and processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg.conninfo import conninfo_to_dict

from connectors.config import connector_name, slot_name
from connectors.connect_api import ConnectApi
from cronstream.settings import CaptureSettings, Installation, read_settings
from cronstream.topics import Topics
from sql.connection import claim
from sql.migrate import migrate
from tests.support.endpoints import Endpoints
from tests.support.poll import eventually

Model = TypeVar("Model", bound=Installation)
ROOT = Path(__file__).parents[2]


@dataclass
class TestInstallation:
    """One test's installation. Processes started through it end with it."""

    __test__ = False

    name: str
    endpoints: Endpoints
    dsn: str = field(repr=False)
    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    @contextmanager
    def made(cls, endpoints: Endpoints) -> Iterator[TestInstallation]:
        """Topics made, database migrated."""
        name = f"t{uuid.uuid4().hex[:10]}"
        with tempfile.TemporaryDirectory(prefix=name) as folder, endpoints.database() as dsn:
            made = cls(name, endpoints, dsn, Path(folder))
            with psycopg.connect(dsn, autocommit=True) as connection:
                migrate(connection)
                claim(connection, name)
            made._create_topics()
            try:
                yield made
            finally:
                made.end_processes()
                made._end_capture()
                made._delete_topics()

    @property
    def topics(self) -> Topics:
        return Topics(self.name)

    @property
    def variables(self) -> dict[str, str]:
        """The environment of this installation's processes."""
        database = conninfo_to_dict(self.dsn)["dbname"]
        variables = {
            "CRONSTREAM_INSTALLATION": self.name,
            "CRONSTREAM_POSTGRES": f"{self.endpoints.postgres} dbname={database}",
            "CRONSTREAM_POSTGRES_PASSWORD_FILE": str(self.endpoints.password_file),
            "CRONSTREAM_KAFKA": self.endpoints.kafka,
            "CRONSTREAM_ETCD": self.endpoints.etcd,
            "CRONSTREAM_CONNECT": self.endpoints.connect,
            "CRONSTREAM_CONNECT_SECRETS": self.endpoints.connect_secrets,
            "CRONSTREAM_PARTITIONS": "4",
            "CRONSTREAM_HTTP_ALLOW": "127.0.0.0/8",
        }
        if self.endpoints.capture_host is not None:
            variables["CRONSTREAM_CAPTURE_POSTGRES_HOST"] = self.endpoints.capture_host
            variables["CRONSTREAM_CAPTURE_POSTGRES_PORT"] = str(self.endpoints.capture_port)
        return variables

    def settings(self, model: type[Model], **changes: object) -> Model:
        """Settings as a process of this installation would read them."""
        extra = {f"CRONSTREAM_{key.upper()}": str(value) for key, value in changes.items()}
        return read_settings(model, {**self.variables, **extra})

    def connect(self, **kwargs: Any) -> psycopg.Connection[Any]:
        """A connection to this installation's database; autocommit unless told otherwise."""
        return psycopg.connect(self.dsn, **{"autocommit": True, **kwargs})

    def start(self, module: str, node: str, **changes: object) -> subprocess.Popen[bytes]:
        """Start ``python -m module``; its log is ``log_of(node)``."""
        extra = {f"CRONSTREAM_{key.upper()}": str(value) for key, value in changes.items()}
        data = {"CRONSTREAM_DATA_DIR": str(self.folder / node)} if module == "streams" else {}
        clean = {key: value for key, value in os.environ.items() if not key.startswith("CRONSTREAM_")}
        with self._log(node).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module],
                cwd=ROOT,
                env={**clean, **self.variables, **data, "CRONSTREAM_NODE": node, **extra},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def log_of(self, node: str) -> str:
        """What a process has logged."""
        return self._log(node).read_text(errors="replace")

    def last_lines(self, count: int = 40) -> dict[str, str]:
        """The end of each process' log, by node."""
        return {
            log.stem: "\n".join(log.read_text(errors="replace").splitlines()[-count:])
            for log in sorted(self.folder.glob("*.log"))
        }

    def end_processes(self) -> None:
        """SIGTERM, then SIGKILL after a while: to the processes that this installation started."""
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def _log(self, node: str) -> Path:
        return self.folder / f"{node}.log"

    def _end_capture(self) -> None:
        """Delete the connector, if one was registered, and its slot: a database with a live slot cannot be dropped."""
        settings = self.settings(CaptureSettings)
        ConnectApi(self.endpoints.connect).delete(connector_name(settings))
        with self.connect() as connection:
            eventually(lambda: _slot_is_gone(connection, slot_name(settings)), within=30, every=0.2)

    def _create_topics(self) -> None:
        specs = self.topics.specs(4)
        admin = self._admin()  # kept: its futures die with it
        made = admin.create_topics(
            [
                NewTopic(spec.name, num_partitions=spec.partitions, replication_factor=1, config=spec.config)
                for spec in specs
            ]
        )
        for future in made.values():
            future.result(30)

    def _delete_topics(self) -> None:
        admin = self._admin()
        names = [
            name for name in admin.list_topics(timeout=10).topics if name.startswith((f"{self.name}.", f"{self.name}-"))
        ]
        if names:
            for future in admin.delete_topics(names).values():
                future.result(30)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.endpoints.kafka})


def _slot_is_gone(connection: psycopg.Connection[Any], slot: str) -> bool:
    try:
        connection.execute(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s", [slot]
        )
    except psycopg.errors.ObjectInUse:
        return False
    return True
