"""Forward migrations: numbered .sql files, each applied once in its own transaction.

``cronstream.schema_migrations`` keeps what was applied, with a checksum. A
database with a version that this code does not know, or with a file that was
changed afterwards, is refused: nothing is guessed. Two runners wait for one
another by a lock of that table, which nobody else may take: an advisory lock could
be held by whoever connects. For other tables none waits for long: whoever comes behind
it would wait as well. Nothing needs a superuser; the role owns the schema.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from sql.blockers import Blocked, naming_blockers

log = logging.getLogger(__name__)

MIGRATIONS = Path(__file__).parent / "migrations"
_FILE_NAME = re.compile(r"(\d{4})_([a-z][a-z0-9_]*)\.sql")

LOCK_SECONDS = 5
"""How long a migration waits for a table that somebody uses."""

_BOOTSTRAP = """
CREATE SCHEMA IF NOT EXISTS cronstream;
CREATE TABLE IF NOT EXISTS cronstream.schema_migrations (
    version     integer PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);
"""
# Postgres lets everybody execute a new function. One with its owner's rights is then anybody's tool (a trigger function
# hung on a table of their own), so a function is nobody's until a migration grants it to a role by name.
_NOBODY_S = "REVOKE EXECUTE ON ALL ROUTINES IN SCHEMA cronstream FROM PUBLIC"


class SchemaError(RuntimeError):
    """The database's schema and this code do not fit; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: its number, name, text and what identifies the text."""

    version: int
    name: str
    text: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def load_migrations(folder: Path = MIGRATIONS) -> list[Migration]:
    """The files of a folder in order. Raises SchemaError on a name or number out of line."""
    found = []
    for path in sorted(folder.glob("*.sql")):
        match = _FILE_NAME.fullmatch(path.name)
        if match is None:
            raise SchemaError(f"{path.name}: a migration is named NNNN_what_it_brings.sql")
        found.append(Migration(int(match[1]), match[2], path.read_text(encoding="utf-8")))
    if [m.version for m in found] != list(range(1, len(found) + 1)):
        raise SchemaError(f"migrations are not numbered from 1 without holes: {[m.version for m in found]}")
    return found


def pending(applied: Mapping[int, tuple[str, str]], known: Sequence[Migration]) -> list[Migration]:
    """What is still to apply, given version -> (name, checksum). Raises SchemaError."""
    by_version = {m.version: m for m in known}
    for version, (name, checksum) in sorted(applied.items()):
        migration = by_version.get(version)
        if migration is None:
            raise SchemaError(
                f"the database holds schema version {version} ({name}), this code knows {len(known)}: "
                "it was migrated by newer code; run that, or restore a backup"
            )
        if checksum != migration.checksum:
            raise SchemaError(
                f"migration {version:04}_{migration.name}.sql was changed after it was applied "
                f"({checksum[:12]} then, {migration.checksum[:12]} now): bring the old text back and add a new file"
            )
    todo = [m for m in known if m.version not in applied]
    if todo and applied and todo[0].version < max(applied):
        raise SchemaError(f"migration {todo[0].version:04} is missing below version {max(applied)}")
    return todo


def migrate(conn: psycopg.Connection[Any], known: Sequence[Migration] | None = None) -> list[Migration]:
    """Bring the schema up to date and return what was applied. Raises SchemaError, also where a table is locked.

    The connection must be in autocommit mode: each migration is a transaction.
    """
    if not conn.autocommit:
        raise ValueError("migrate needs a connection in autocommit mode")
    known = load_migrations() if known is None else known
    try:
        _bootstrap(conn)
    except (psycopg.errors.UniqueViolation, psycopg.errors.DuplicateSchema, psycopg.errors.DuplicateTable):
        _bootstrap(conn)  # another runner made them in the same moment
    done = []
    while (migration := _apply_next(conn, known)) is not None:
        done.append(migration)
    return done


def schema_version_check(conn: psycopg.Connection[Any]) -> None:
    """What every process calls at boot. Raises SchemaError on an outdated or unknown schema."""
    try:
        applied = _applied(conn)
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        raise SchemaError("the database has no cronstream schema: run `python -m sql migrate`") from None
    todo = pending(applied, load_migrations())
    if todo:
        raise SchemaError(
            f"the database's schema is outdated ({len(applied)} of {len(applied) + len(todo)} migrations): "
            "run `python -m sql migrate`"
        )


def _applied(conn: psycopg.Connection[Any]) -> dict[int, tuple[str, str]]:
    rows = conn.execute("SELECT version, name, checksum FROM cronstream.schema_migrations").fetchall()
    return {version: (name, checksum) for version, name, checksum in rows}


def _bootstrap(conn: psycopg.Connection[Any]) -> None:
    with conn.transaction():
        conn.execute(_BOOTSTRAP)


def _apply_next(conn: psycopg.Connection[Any], known: Sequence[Migration]) -> Migration | None:
    """The first that is missing, once no other runner is at it; None if none is."""
    with conn.transaction():
        conn.execute("LOCK TABLE cronstream.schema_migrations IN SHARE ROW EXCLUSIVE MODE")
        todo = pending(_applied(conn), known)
        if not todo:
            return None
        _apply(conn, todo[0])
    log.info("migration %s applied", _label(todo[0]), extra={"action": "migrate", "version": todo[0].version})
    return todo[0]


def _apply(conn: psycopg.Connection[Any], migration: Migration) -> None:
    try:
        with naming_blockers(conn):
            conn.execute(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'".encode())
            conn.execute(migration.text.encode())
            conn.execute(_NOBODY_S)
            conn.execute(
                "INSERT INTO cronstream.schema_migrations (version, name, checksum) VALUES (%s, %s, %s)",
                (migration.version, migration.name, migration.checksum),
            )
    except Blocked as error:
        waited = f"migration {_label(migration)} has waited for {LOCK_SECONDS} s and left nothing behind"
        raise SchemaError(f"{waited}: {error}") from error
    except psycopg.DatabaseError as error:
        raise SchemaError(f"migration {_label(migration)} failed and left nothing behind: {error}") from error


def _label(migration: Migration) -> str:
    return f"{migration.version:04}_{migration.name}"
