"""Rows into ``cronstream.job_runs``: COPY into a staging table, then insert what is new.

Writing the same rows again changes nothing, so whoever is in doubt writes again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from psycopg import errors

from streams.history import Row

log = logging.getLogger(__name__)

_COLUMNS = ", ".join(Row._fields)
_STAGE = (
    "CREATE TEMPORARY TABLE IF NOT EXISTS staged_runs"
    " (LIKE cronstream.job_runs INCLUDING DEFAULTS) ON COMMIT DELETE ROWS"
)
_COPY = f"COPY staged_runs ({_COLUMNS}) FROM STDIN"
_INSERT = f"INSERT INTO cronstream.job_runs ({_COLUMNS}) SELECT {_COLUMNS} FROM staged_runs ON CONFLICT DO NOTHING"  # noqa: S608
_ENSURE = "SELECT cronstream.ensure_job_runs_partition(%s)"

Refused = list[tuple[Row, str]]
"""Rows that the database does not take, and what it says of them."""


class HistoryWriter:
    """One connection, made anew after it broke. Not for threads."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._connection: psycopg.Connection[Any] | None = None

    def write(self, rows: Sequence[Row]) -> Refused:
        """Store all rows; returns those that cannot be stored.

        Raises psycopg.OperationalError (and only that) while the database is away or busy.
        """
        if not rows:
            return []
        try:
            return self._write(rows)
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.close()
            raise psycopg.OperationalError(str(error)) from error

    def close(self) -> None:
        """Drop the connection; the next write makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _write(self, rows: Sequence[Row]) -> Refused:
        try:
            self._insert(rows)
        except errors.CheckViolation as error:
            if error.diag.constraint_name is not None:
                return self._halve(rows, error)
            return self._with_partitions(rows)
        except (errors.DataError, errors.IntegrityError) as error:
            return self._halve(rows, error)
        return []

    def _with_partitions(self, rows: Sequence[Row]) -> Refused:
        """A day has no partition: make those of all the rows' days, then write."""
        connection = self._connected()
        try:
            for day in sorted({row.day for row in rows}):
                connection.execute(_ENSURE, (day,))
            self._insert(rows)
        except (errors.DataError, errors.IntegrityError) as error:
            return self._halve(rows, error)
        return []

    def _halve(self, rows: Sequence[Row], error: psycopg.Error) -> Refused:
        if len(rows) == 1:
            return [(rows[0], str(error))]
        middle = len(rows) // 2
        return self._write(rows[:middle]) + self._write(rows[middle:])

    def _insert(self, rows: Sequence[Row]) -> None:
        with self._connected().transaction(), self._connected().cursor() as cursor:
            with cursor.copy(_COPY) as copy:
                for row in rows:
                    copy.write_row(row)
            cursor.execute(_INSERT)

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            connection = self._connect()
            connection.autocommit = True
            connection.execute(_STAGE)
            self._connection = connection
        return self._connection
