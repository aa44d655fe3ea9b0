"""Connections to Postgres, set up alike for every process, and refused to another installation's."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.rows import tuple_row

from cronstream.settings import PREFIX, Installation

# A server that is gone without a word is noticed within about five seconds,
# while waiting for an answer (keepalives) and while sending (user timeout).
_NOTICE_DEAD_SERVER: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 5000,
}


class OtherInstallation(psycopg.OperationalError):
    """The database belongs to another installation; the message says to which, and what to do."""


def parameters(settings: Installation, role: str = "") -> dict[str, Any]:
    """What ``connect`` passes beside the connection string: for async connections and pools."""
    name = f"{settings.installation} {role or settings.node}"
    return {**_NOTICE_DEAD_SERVER, "application_name": name[:63], "options": "-c timezone=UTC"}


def connect(settings: Installation, role: str = "", **kwargs: Any) -> psycopg.Connection[Any]:
    """A connection in UTC. ``role`` names it in pg_stat_activity; the rest goes to psycopg.

    Raises OtherInstallation, whoever asks: what is written under two names is fenced by neither.
    """
    autocommit = kwargs.pop("autocommit", False)
    given = {**parameters(settings, role), "password": settings.postgres_password(), **kwargs}
    connection = psycopg.connect(settings.postgres, autocommit=True, **given)
    try:
        _check_owner(connection, settings.installation)
        connection.autocommit = autocommit
    except BaseException:
        connection.close()
        raise
    return connection


def claim(connection: psycopg.Connection[Any], installation: str) -> None:
    """Make the database that installation's, for good, unless it is another's. Raises OtherInstallation."""
    connection.execute(
        "INSERT INTO cronstream.installation (name) VALUES (%s) ON CONFLICT (single) DO NOTHING", (installation,)
    )
    _check_owner(connection, installation)


def _check_owner(connection: psycopg.Connection[Any], installation: str) -> None:
    """A database without our schema, or one that nobody has claimed yet, is anybody's."""
    try:
        row = connection.cursor(row_factory=tuple_row).execute("SELECT name FROM cronstream.installation").fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return
    if row is not None and row[0] != installation:
        raise OtherInstallation(
            f"the database {connection.info.dbname} belongs to the installation {row[0]}, and "
            f"{PREFIX}INSTALLATION is {installation}: set it to {row[0]}, or give {installation} a database of its own"
        )
