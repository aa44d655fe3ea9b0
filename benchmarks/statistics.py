"""What Postgres says of its tables and statements: sizes, dead rows, vacuums, and where its time went."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Composed, Literal

from benchmarks.report import Value
from stack import servers
from stack.home import Home

HOT = ("schedules", "job_definitions")
"""The tables whose bloat is watched."""
_HUGE_PAGES = Path("/proc/sys/vm/nr_hugepages")
_HUGE_PAGE_BYTES = 2 * 2**20


@dataclass(frozen=True, slots=True)
class TableState:
    """One table at one moment."""

    live: int
    dead: int
    updates: int
    hot_updates: int
    autovacuums: int
    table_bytes: int
    indexes: dict[str, int]
    """Bytes by the index' name."""

    def since(self, before: TableState) -> dict[str, Value]:
        """What has changed, for the report."""
        values: dict[str, Value] = {
            "live": self.live,
            "dead_before": before.dead,
            "dead_after": self.dead,
            "updates": self.updates - before.updates,
            "hot_updates": self.hot_updates - before.hot_updates,
            "autovacuums": self.autovacuums - before.autovacuums,
            "table_mb_before": before.table_bytes / 1e6,
            "table_mb_after": self.table_bytes / 1e6,
        }
        for name, size in self.indexes.items():
            values[f"{name}_mb_before"] = before.indexes.get(name, 0) / 1e6
            values[f"{name}_mb_after"] = size / 1e6
        return values


def state_of(connection: psycopg.Connection[Any], table: str) -> TableState:
    """A table of the schema ``cronstream`` now."""
    row = connection.execute(
        """SELECT n_live_tup, n_dead_tup, n_tup_upd, n_tup_hot_upd, autovacuum_count, pg_table_size(relid)
           FROM pg_stat_user_tables WHERE schemaname = 'cronstream' AND relname = %s""",
        [table],
    ).fetchone()
    assert row is not None
    indexes = connection.execute(
        """SELECT indexrelname, pg_relation_size(indexrelid) FROM pg_stat_user_indexes
           WHERE schemaname = 'cronstream' AND relname = %s""",
        [table],
    ).fetchall()
    live, dead, updates, hot_updates, autovacuums, size = row
    return TableState(live, dead, updates, hot_updates, autovacuums, size, dict(indexes))


def growth(before: TableState, after: TableState) -> dict[str, float]:
    """By how much the table and each index have grown: 1 is not at all."""
    found = {"table": after.table_bytes / max(before.table_bytes, 1)}
    return found | {name: size / max(before.indexes.get(name, 1), 1) for name, size in after.indexes.items()}


def growth_rows(name: str, before: TableState, after: TableState) -> list[tuple[object, ...]]:
    """For a table of the report: the table's line, then one for each of its indexes."""
    grown = growth(before, after)
    first = (
        name,
        before.table_bytes / 1e6,
        after.table_bytes / 1e6,
        grown["table"],
        before.dead,
        after.dead,
        after.updates - before.updates,
        after.hot_updates - before.hot_updates,
        after.autovacuums - before.autovacuums,
    )
    return [first] + [
        (index, before.indexes.get(index, 0) / 1e6, size / 1e6, grown[index], *[None] * 5)
        for index, size in sorted(after.indexes.items())
    ]


GROWTH_HEAD = (
    "table or index",
    "MB before",
    "MB after",
    "times",
    "dead before",
    "dead after",
    "updates",
    "of them HOT",
    "autovacuums",
)


def count_statements(home: Home) -> None:
    """Make Postgres keep pg_stat_statements: it is restarted, once, if it does not yet."""
    with _superuser(home, "postgres") as connection:
        row = connection.execute("SHOW shared_preload_libraries").fetchone()
        if row is not None and "pg_stat_statements" in row[0]:
            return
    _alter(home, SQL("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'"))


@contextmanager
def with_memory(home: Home) -> Iterator[str]:
    """Postgres has a quarter of the machine's memory for its pages, as one gives any database; yields how much.

    In huge pages, where whoever asks may reserve them (docs/operations.md).
    """
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    with _huge_pages(size) as reserved:
        _alter(home, SQL("ALTER SYSTEM SET shared_buffers = {}").format(Literal(f"{size // 2**20}MB")))
        try:
            yield f"{size // 2**20} MB{', huge pages' if reserved else ''}"
        finally:
            _alter(home, SQL("ALTER SYSTEM RESET shared_buffers"))


@contextmanager
def _huge_pages(size: int) -> Iterator[bool]:
    """Enough of them for so many bytes and Postgres' other shared memory; False where that is not to be had."""
    before = int(_HUGE_PAGES.read_text())
    wanted = before + size * 11 // 10 // _HUGE_PAGE_BYTES
    with contextlib.suppress(OSError):
        _HUGE_PAGES.write_text(str(wanted))
    try:
        yield int(_HUGE_PAGES.read_text()) >= wanted
    finally:
        with contextlib.suppress(OSError):
            _HUGE_PAGES.write_text(str(before))


def _alter(home: Home, statement: SQL | Composed) -> None:
    with _superuser(home, "postgres") as connection:
        connection.execute(statement)
    servers.restart(home, "postgres")


def begin_statements(home: Home, database: str) -> None:
    """Count from now on."""
    with _superuser(home, database) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        connection.execute("SELECT pg_stat_statements_reset()")


def top_statements(home: Home, database: str, most: int = 8) -> list[tuple[object, ...]]:
    """Where this database's time went: seconds, calls, ms a call, rows, and how the statement begins."""
    with _superuser(home, database) as connection:
        rows = connection.execute(
            """SELECT total_exec_time / 1000, calls, mean_exec_time, rows, query FROM pg_stat_statements
               WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
               ORDER BY total_exec_time DESC LIMIT %s""",
            [most],
        ).fetchall()
    return [(*row[:4], " ".join(row[4].split())[:90].replace("|", "/")) for row in rows]


def _superuser(home: Home, database: str) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host="127.0.0.1",
        port=home.port("postgres"),
        dbname=database,
        user="postgres",
        password=home.secret("postgres_superuser_password"),
        autocommit=True,
    )
