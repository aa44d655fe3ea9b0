"""Where the servers of this run are."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.support.poll import eventually


@dataclass(frozen=True)
class Endpoints:
    """Addresses of the running servers, and how to disturb one of them."""

    kafka: str
    etcd: str
    connect: str
    postgres: str
    """libpq parameters without database and password."""
    password_file: Path
    connect_secrets: str
    """The path of Connect's secrets file, as Connect sees it."""
    capture_host: str | None
    capture_port: int | None
    """How Connect reaches Postgres, where that differs."""
    kill: Callable[[str], None]
    """SIGKILL one server: postgres, etcd, kafka or connect."""
    start: Callable[[str], None]
    """Start it again on the same port and data, and wait until it is ready."""

    def dsn(self, database: str) -> str:
        """A connection string with the password in it."""
        return f"{self.postgres} dbname={database} password={self.password_file.read_text().strip()}"

    @contextmanager
    def database(self) -> Iterator[str]:
        """A new, empty database; dropped afterwards with whoever is still connected."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.dsn("cronstream"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")  # type: ignore[arg-type]
        try:
            yield self.dsn(name)
        finally:
            with psycopg.connect(self.dsn("cronstream"), autocommit=True) as connection:
                eventually(lambda: _dropped(connection, name), within=20, every=0.2)


def _dropped(connection: psycopg.Connection[Any], name: str) -> bool:
    try:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")  # type: ignore[arg-type]
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectInUse):
        return False  # autovacuum is in there, and is not ours to end
    return True
