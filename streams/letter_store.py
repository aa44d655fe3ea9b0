"""Dead letters into ``cronstream.dead_letters``. Keeping the same letters again changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from sql.queries import load
from streams.letters import DeadLetter

log = logging.getLogger(__name__)

_QUERIES = load("dead_letters")


class LetterStore:
    """One connection, made anew after it broke. Not for threads."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._connection: psycopg.Connection[Any] | None = None

    def keep(self, letters: Sequence[DeadLetter]) -> None:
        """Store all that can be stored. Raises psycopg.OperationalError (and only that) while the database is away."""
        try:
            try:
                self._keep(letters)
            except (psycopg.DataError, psycopg.IntegrityError):
                self._keep_one_by_one(letters)
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            self.close()
            raise psycopg.OperationalError(str(error)) from error

    def close(self) -> None:
        """Drop the connection; the next call makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _keep(self, letters: Sequence[DeadLetter]) -> None:
        with self._connected().transaction(), self._connected().cursor() as cursor:
            with cursor.copy("COPY staged_letters FROM STDIN") as copy:
                for letter in letters:
                    copy.write_row(letter)
            cursor.execute(_QUERIES["keep_letters"])

    def _keep_one_by_one(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            try:
                self._keep([letter])
            except (psycopg.DataError, psycopg.IntegrityError) as error:
                known = {"action": "store", "partition": letter.letter_partition, "offset": letter.letter_offset}
                log.error("A dead letter cannot be a row; it stays in its topic: %s", error, extra=known)

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = self._connect()
            self._connection.autocommit = True
            self._connection.execute(_QUERIES["stage_letters"])
        return self._connection
