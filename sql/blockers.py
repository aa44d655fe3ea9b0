"""Who holds the lock that a connection waits for: asked from a second connection while the first one waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import psycopg

from sql.queries import load

queries = load("locks")

FIRST_LOOK_SECONDS = 0.4
LOOK_SECONDS = 0.3


class Blocked(psycopg.OperationalError):
    """A lock did not come in time; the message says who holds it, and what to do."""


@dataclass(frozen=True, slots=True)
class Backend:
    """A connection as others see it."""

    pid: int
    _dsn: str
    _password: str = field(repr=False)

    @classmethod
    def of(cls, connection: psycopg.Connection[Any]) -> Backend:
        """Of a connection that is open."""
        return cls(connection.info.backend_pid, connection.info.dsn, connection.info.password)

    def beside(self) -> psycopg.Connection[Any]:
        """A second connection to the same database. Raises psycopg.Error."""
        return psycopg.connect(self._dsn, password=self._password or None, autocommit=True)

    def holders(self, connection: psycopg.Connection[Any]) -> str | None:
        """Who holds what it waits for, asked on another connection; None: it waits for no lock."""
        return told(connection.execute(queries["holders"], {"pid": self.pid}).fetchall())


def told(rows: Sequence[tuple[int, str | None, str | None, datetime | None]]) -> str | None:
    """Rows of ``holders`` in words."""
    return ", behind ".join(_who(*row) for row in rows) or None


def _who(pid: int, user: str | None, application: str | None, since: datetime | None) -> str:
    known = [
        f"user {user}" if user else "",
        application or "",
        f"its transaction open since {since.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}" if since else "",
    ]
    return f"pid {pid} ({', '.join(part for part in known if part) or 'nothing more is known of it'})"


class Lookout:
    """Looks from a thread of its own, until ``close``, whom a connection waits for."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._backend = Backend.of(connection)
        self._over = threading.Event()
        self._holders: str | None = None
        threading.Thread(target=self._look, name="lookout", daemon=True).start()

    def says(self) -> str:
        """For a user whose statement did not get its lock."""
        holders = self._holders or "another transaction (SELECT * FROM pg_locks shows whose)"
        return f"a lock that this needs is held by {holders}: try again when that has ended"

    def close(self) -> None:
        """Any number of times."""
        self._over.set()

    def _look(self) -> None:
        try:
            if self._over.wait(FIRST_LOOK_SECONDS):
                return  # what is done by then pays for no second connection
            with self._backend.beside() as connection:
                while not self._over.is_set():
                    self._holders = self._backend.holders(connection) or self._holders
                    self._over.wait(LOOK_SECONDS)
        except psycopg.Error:
            return  # then it is said without a name


@contextmanager
def naming_blockers(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """What does not get its lock in here raises Blocked, which names the holder."""
    lookout = Lookout(connection)
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise Blocked(lookout.says()) from error
    finally:
        lookout.close()
