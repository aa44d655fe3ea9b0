"""A batch of outcomes into Postgres: rows of history, and the status of jobs, in one transaction.

    COPY into staging ──► job_runs, what is new ──► counted by job ──► job_status, running_attempts ──► outcomes_read

Writing the same records again changes nothing, so whoever is in doubt writes again: rows
are unique by attempt, only new ones are counted, and the status takes no record at or
below the offset that it includes. Two writers of a partition wait for one another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from psycopg import errors
from psycopg.sql import SQL, Identifier

from cronstream.dead_letters import Record
from cronstream.records import Batch
from sql.queries import load
from streams.history import Row
from streams.news import JobNews, News, Start

log = logging.getLogger(__name__)

_QUERIES = load("history")
_STORE_ROWS = _QUERIES["store_rows"].format(columns=", ".join(Row._fields))
_NOT_TEXT = {
    "job_id": "int8",
    "request_id": "int8",
    "last_request_id": "int8",
    "attempt": "int4",
    "last_attempt": "int4",
    "run_count": "int8",
    "fencing_token": "int8",
    "scheduled_time": "timestamptz",
    "first_time": "timestamptz",
    "published_at": "timestamptz",
    "started_at": "timestamptz",
    "finished_at": "timestamptz",
    "last_run": "timestamptz",
    "last_finished_at": "timestamptz",
    "deleted": "bool",
}
"""Columns by their types; COPY in binary converts none. An attempt has 32 bits on the wire too."""
_ENSURE = "SELECT cronstream.ensure_job_runs_partition(%s)"


@dataclass(frozen=True, slots=True)
class Heard:
    """An outcomes record that could be read, and its rows."""

    record: Record
    batch: Batch
    rows: list[Row]


class Refused(NamedTuple):
    """A row that the database does not take, the record it came in, and what the database says of it."""

    record: Record
    row: Row
    why: str


class HistoryWriter:
    """One connection, made anew after it broke. Not for threads."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._connection: psycopg.Connection[Any] | None = None

    def write(self, heard: Sequence[Heard], topic_id: str) -> list[Refused]:
        """Store records of a topic, in the order of their offsets; returns the rows that cannot be stored.

        Raises psycopg.OperationalError (and only that) while the database is away or busy.
        """
        if not heard:
            return []
        try:
            try:
                return self._write(heard, topic_id)
            except _NoPartition:
                self._make_partitions(row for one in heard for row in one.rows)
                return self._write(heard, topic_id, partitions_made=True)
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.close()
            raise psycopg.OperationalError(str(error)) from error

    def close(self) -> None:
        """Drop the connection; the next write makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _write(self, heard: Sequence[Heard], topic_id: str, *, partitions_made: bool = False) -> list[Refused]:
        ends = {one.record.partition: one.record.offset + 1 for one in heard}
        partitions = sorted(ends)
        topic = {"topic_id": topic_id, "partitions": partitions}
        connection = self._connected()
        with connection.transaction(), connection.cursor() as cursor:
            cursor.execute(_QUERIES["know_offsets"], topic)
            known = dict(cursor.execute(_QUERIES["lock_offsets"], topic).fetchall())
            pairs = [(one.record, row) for one in heard for row in one.rows]
            refused = self._store(cursor, pairs, partitions_made)
            news = News()
            for one in heard:
                if one.record.offset >= known[one.record.partition]:
                    news.add(one.batch, one.rows)
            _store_news(cursor, news)
            offsets = [ends[partition] for partition in partitions]
            cursor.execute(_QUERIES["note_offsets"], {**topic, "offsets": offsets})
        return refused

    def _store(
        self, cursor: psycopg.Cursor[Any], pairs: Sequence[tuple[Record, Row]], partitions_made: bool
    ) -> list[Refused]:
        """Rows into history, in halves where one of them is refused."""
        try:
            with cursor.connection.transaction():  # a savepoint
                _copy(cursor, "staged_runs", Row._fields, (row for _, row in pairs))
                cursor.execute(_STORE_ROWS)
                cursor.execute(_QUERIES["forget_rows"])
            return []
        except errors.CheckViolation as error:
            if error.diag.constraint_name is None and not partitions_made:
                raise _NoPartition from None
            why = str(error)
        except (errors.DataError, errors.IntegrityError, OverflowError) as error:  # the last: no number of its column
            why = str(error)
        if len(pairs) == 1:
            return [Refused(*pairs[0], why)]
        middle = len(pairs) // 2
        first = self._store(cursor, pairs[:middle], partitions_made)
        return first + self._store(cursor, pairs[middle:], partitions_made)

    def _make_partitions(self, rows: Iterable[Row]) -> None:
        """Of all the rows' days; a day that cannot have one is found out when its row is refused."""
        connection = self._connected()
        spans = connection.execute(_QUERIES["attached_spans"]).fetchall()
        for day in sorted({row.day for row in rows}):
            if any(first <= day <= last for first, last in spans):
                continue  # asked of each day, Postgres would take seconds for thousands that share one partition
            try:
                connection.execute(_ENSURE, (day,))
            except errors.DataError as error:
                log.warning("No partition: %s", error, extra={"action": "make_partition", "day": day.isoformat()})
            else:
                spans = connection.execute(_QUERIES["attached_spans"]).fetchall()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            connection = self._connect()
            connection.autocommit = True
            connection.execute(_QUERIES["stage"])
            self._connection = connection
        return self._connection


class _NoPartition(Exception):
    """A row's day has no partition yet."""


def _store_news(cursor: psycopg.Cursor[Any], news: News) -> None:
    jobs = list(news.jobs())
    if not jobs:
        return
    _copy(cursor, "staged_starts", Start._fields, news.starts.values())
    _copy(cursor, "staged_ends", Start._fields[:4], news.ends)
    _copy(cursor, "staged_jobs", JobNews._fields, jobs)
    cursor.execute(_QUERIES["store_status"])


def _copy(cursor: psycopg.Cursor[Any], table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Raises OverflowError over a number that is none of its column's type."""
    names = SQL(", ").join(map(Identifier, columns))
    with cursor.copy(SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(Identifier(table), names)) as copy:
        copy.set_types([_NOT_TEXT.get(column, "text") for column in columns])
        for row in rows:
            copy.write_row(row)
