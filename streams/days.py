"""Days of history out of Postgres into Parquet files, and back.

    export ──► verify (read back) ──► note ──► DETACH CONCURRENTLY ──► counted again ──► DROP

Every step may be the last before a crash, and the next call goes on from there: a file is
noted once it is verified, a table is dropped only if a noted file holds as many rows,
and a detachment that was left half done is ended first. Inserts wait for none of it.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from psycopg.rows import class_row, dict_row

from sql.queries import load
from streams import parquet
from streams.parquet import Content

log = logging.getLogger(__name__)

_QUERIES = load("history")
DETACH_SECONDS = 300
"""How long a detachment waits for those who read history; the next call ends it."""


class HistoryError(RuntimeError):
    """A file does not hold what it must, or is not where it was; the message says which."""


@dataclass(frozen=True, slots=True)
class Export:
    """A row of ``history_exports``."""

    day: date
    last_day: date
    part: int
    file: str
    source: str
    rows: int
    checksum: str
    exported_at: datetime
    dropped_at: datetime | None
    keep_until: datetime | None

    @property
    def content(self) -> Content:
        """What the file must hold."""
        return Content(self.rows, self.checksum)


@contextmanager
def alone(connect: Callable[[], psycopg.Connection[Any]]) -> Iterator[bool]:
    """Hold the lock of retention; False if someone else does. Every method of ``Days`` that writes needs it.

    A table's lock, which needs rights on it: an advisory lock could be held by whoever
    connects. It lasts a transaction, and a detachment runs in none, so that it has a
    connection of its own. Should that one break, two may be at it for a while: files are
    still verified, and rows counted, before anything is dropped.
    """
    with connect() as connection:
        connection.autocommit = False
        connection.execute("SET idle_in_transaction_session_timeout = 0")
        try:
            connection.execute("LOCK TABLE cronstream.retention IN EXCLUSIVE MODE NOWAIT")
        except psycopg.errors.LockNotAvailable:
            connection.rollback()
            yield False
            return
        yield True


class Days:
    """One connection in autocommit mode, and the folder of the files."""

    def __init__(self, connection: psycopg.Connection[Any], folder: Path) -> None:
        self._connection = connection
        self._folder = folder

    def attached(self) -> list[dict[str, Any]]:
        """The partitions: source, day, last_day, rows_estimate (None: not known yet), bytes, kept."""
        return self._dicts("attached_days")

    def written_since(self, source: str, day: date) -> bool:
        """Whether a row of that partition was written on that UTC day or later; restored rows count as of old."""
        found = sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE recorded_at >= {}::timestamp AT TIME ZONE 'UTC')")
        return bool(self._one(found.format(_table(source), sql.Literal(day))))

    def exports(self, day: date | None = None) -> list[Export]:
        """The files, of one day or of all."""
        with self._connection.cursor(row_factory=class_row(Export)) as cursor:
            return cursor.execute(_QUERIES["exports"], {"day": day}).fetchall()

    def exports_with(self, day: date) -> list[Export]:
        """The files that hold rows of a day: its own, and those of several days."""
        with self._connection.cursor(row_factory=class_row(Export)) as cursor:
            return cursor.execute(_QUERIES["exports_with"], {"day": day}).fetchall()

    def finish(self) -> None:
        """End what a call before left: half a detachment, tables that were detached and not dropped."""
        pending = self._one(_QUERIES["pending_detachment"])
        if pending is not None:
            log.info("A detachment is ended", extra={"action": "finish_detachment", "table": pending})
            self._run("ALTER TABLE cronstream.job_runs DETACH PARTITION {} FINALIZE", pending)
        for left in self._dicts("detached_days"):
            self._drop(left["day"], left["source"])

    def let_go(self, day: date, source: str) -> Export:
        """Export a partition, then take its rows out of Postgres."""
        self.export(day, source)
        with self._patience(DETACH_SECONDS):
            self._run("ALTER TABLE cronstream.job_runs DETACH PARTITION {} CONCURRENTLY", source)
        return self._drop(day, source)

    def let_go_aged(self, day: date, source: str, before: date) -> None:
        """Export a partition's rows of before that UTC day that were also written before it, and take them out.

        For a partition that gets rows again and again: the whole of it is never old.
        """
        aged = sql.SQL(
            "recorded_at < {0}::timestamp AT TIME ZONE 'UTC' AND scheduled_time < {0}::timestamp AT TIME ZONE 'UTC'"
        ).format(sql.Literal(before))
        if not self._one(sql.SQL("SELECT EXISTS (SELECT FROM {} WHERE {})").format(_table(source), aged)):
            return
        self._must_have_folder()
        apart = f"{source}_aged"
        with self._connection.transaction():
            self._run("CREATE TABLE {} (LIKE cronstream.job_runs INCLUDING DEFAULTS)", apart)
            move = sql.SQL("WITH aged AS (DELETE FROM {} WHERE {} RETURNING *) INSERT INTO {} SELECT * FROM aged")
            self._connection.execute(move.format(_table(source), aged, _table(apart)))
            self._connection.execute(_QUERIES["note_set_apart"], {"source": source})
        self._drop(day, apart)

    def export(self, day: date, source: str) -> Export:
        """A file that holds the table's rows, verified and noted; the one that is there if it still does."""
        there = self._current(day, source)
        if there is not None:
            return there
        part = next((one.part for one in self.exports(day) if one.source == source and one.dropped_at is None), None)
        if part is None:
            part = max((one.part for one in self.exports(day)), default=0) + 1
        last_day = self._one(_QUERIES["last_day"], source=source)
        file = _file_name(day, last_day, part)
        held = self._write(source, self._folder / file)
        same = next((one for one in self.exports(day) if one.content == held and one.part != part), None)
        if same is not None and self._holds(same):
            (self._folder / file).unlink()
            part, file = same.part, same.file
        noted = {"day": day, "last_day": last_day, "part": part, "file": file, "source": source, **held._asdict()}
        self._connection.execute(_QUERIES["note_export"], noted)
        log.info("A day is exported", extra={"action": "exported", "day": f"{day}", "file": file, "rows": held.rows})
        return next(one for one in self.exports(day) if one.part == part)

    def restore(self, day: date, keep: timedelta) -> int:
        """The rows of a day's files into ``job_runs`` again; how many the files held. Raises HistoryError.

        A file of several days comes back whole.
        """
        if day >= self._one("SELECT (now() AT TIME ZONE 'UTC')::date"):
            raise HistoryError(f"{day} is not over in UTC: its rows are in job_runs, none of them was let go")
        exports = self.exports_with(day)
        if not exports:
            raise HistoryError(f"no file of {day} is known")
        for export in exports:
            self._restore(export)
        self._connection.execute(_QUERIES["note_restored"], {"day": day, "keep": keep})
        log.info("A day is restored", extra={"action": "restored", "day": f"{day}", "files": len(exports)})
        return sum(export.rows for export in exports)

    def _restore(self, export: Export) -> None:
        file = self._folder / export.file
        with self._connection.transaction():
            self._connection.execute("DROP TABLE IF EXISTS cronstream.restored_runs")
            self._connection.execute(
                "CREATE TABLE cronstream.restored_runs"
                " (LIKE cronstream.job_runs INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)"
            )
            with self._connection.cursor().copy("COPY cronstream.restored_runs FROM STDIN (FORMAT csv)") as copy:
                try:
                    for lines in parquet.lines(file):
                        copy.write(lines)
                except (OSError, pa.ArrowException) as error:
                    raise HistoryError(f"{file} cannot be read: {error}") from error
            held = self._content("cronstream.restored_runs")
            if held != export.content:
                raise HistoryError(f"{file} does not hold what was exported: {held}, not {export.content}")
            self._connection.execute(_QUERIES["make_room"], {"alone": export.day == export.last_day})
            self._connection.execute(_QUERIES["merge_restored"])
            self._connection.execute("DROP TABLE cronstream.restored_runs")

    def _drop(self, day: date, source: str) -> Export:
        """Drop a detached table, which nobody writes to any more, once a file holds all of it."""
        export = self.export(day, source)
        with self._connection.transaction():
            self._run("DROP TABLE {}", source)
            self._connection.execute(_QUERIES["note_dropped"], {"source": source})
        log.info("A day is dropped", extra={"action": "dropped", "day": f"{day}", "table": source, "rows": export.rows})
        return export

    def _current(self, day: date, source: str) -> Export | None:
        """The export of this very table, if no row came since and its file is whole."""
        rows = self._one(sql.SQL("SELECT count(*) FROM {}").format(_table(source)))
        for one in self.exports(day):
            if one.source == source and one.dropped_at is None and one.rows == rows and self._holds(one):
                return one
        return None

    def _holds(self, export: Export) -> bool:
        """Whether the file is there and holds what was exported."""
        try:
            return parquet.content(self._folder / export.file) == export.content
        except (OSError, pa.ArrowException) as error:
            log.warning("%s cannot be read: %s", export.file, error, extra={"action": "verify"})
            return False

    def _write(self, source: str, file: Path) -> Content:
        """The table into a file that is in its place only once it was read back and holds the same."""
        self._must_have_folder()
        unverified = file.with_suffix(".unverified")
        with self._connection.cursor().copy(_as_csv(source)) as csv:
            sent = parquet.write(csv, unverified)
        held = parquet.content(unverified)
        if held != sent:
            raise HistoryError(f"{unverified} does not hold what Postgres sent: {held}, not {sent}")
        unverified.replace(file)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return held

    def _must_have_folder(self) -> None:
        """Made here, a slip or a share that is not mounted would take history along. Raises HistoryError."""
        if not self._folder.is_dir():
            raise HistoryError(f"{self._folder} is no folder: make it first, or name the one that is meant")

    def _content(self, source: str) -> Content:
        """What a table holds, as ``parquet`` computes it of a file."""
        digest = hashlib.sha256()
        with self._connection.cursor().copy(_as_csv(source)) as csv:
            for block in csv:
                digest.update(block)
        return Content(self._one(sql.SQL("SELECT count(*) FROM {}").format(_table(source))), digest.hexdigest())

    @contextmanager
    def _patience(self, seconds: int) -> Iterator[None]:
        self._connection.execute(f"SET statement_timeout = {seconds * 1000}".encode())
        try:
            yield
        finally:
            if not self._connection.closed:
                self._connection.execute("SET statement_timeout = 0")

    def _run(self, statement: str, source: str) -> None:
        self._connection.execute(sql.SQL(statement).format(_table(source)))

    def _one(self, query: Any, **parameters: Any) -> Any:
        row = self._connection.execute(query, parameters or None).fetchone()
        return None if row is None else row[0]

    def _dicts(self, query: str) -> list[dict[str, Any]]:
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(_QUERIES[query]).fetchall()


def _file_name(day: date, last_day: date, part: int) -> str:
    """As of its table, numbered by part."""
    several = f"_to_{_digits(last_day)}" if last_day > day else ""
    return f"job_runs_{_digits(day)}{several}{'' if part == 1 else f'_{part}'}.parquet"


def _digits(day: date) -> str:
    return day.isoformat().replace("-", "")  # %Y of year 1 has one digit


def _table(source: str) -> sql.Identifier:
    """A table's name as Postgres prints it: ours need no quotes."""
    return sql.Identifier(*source.split("."))


def _as_csv(source: str) -> sql.Composed:
    columns = sql.SQL(", ").join(
        sql.SQL("cronstream.us({})").format(sql.Identifier(name)) if name in parquet.INSTANTS else sql.Identifier(name)
        for name in parquet.COLUMNS
    )
    return sql.SQL("COPY (SELECT {} FROM {} ORDER BY {}) TO STDOUT (FORMAT csv, FORCE_QUOTE ({}))").format(
        columns,
        _table(source),
        sql.SQL(", ").join(map(sql.Identifier, parquet.KEY)),
        sql.SQL(", ").join(map(sql.Identifier, parquet.TEXTS)),
    )
