"""Named queries on one connection, asked again until Postgres answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import psycopg

import sql
from coordinator.slow_answers import SlowAnswers
from cronstream.settings import CoordinatorSettings
from sql.blockers import Backend
from sql.queries import load

log = logging.getLogger(__name__)
queries = load("coordinator")

OPTIONS = " ".join(
    f"-c {option}"
    for option in (
        "timezone=UTC",
        # Rows are found by their keys, whatever statistics say of tables that have just grown: to join a page of edits
        # it walked all definitions.
        "enable_hashjoin=off",
        "enable_mergejoin=off",
        "jit=off",
        "max_parallel_workers_per_gather=0",
    )
)
"""Of the leader's connections."""
_RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0)


class Stopping(Exception):
    """Postgres did not answer, and the term ends: the question is not asked again."""


class Ask(Protocol):
    """Rows of one of the leader's named queries; tests answer from memory."""

    def __call__(self, name: str, parameters: dict[str, Any], /) -> list[Any]: ...


class Asking:
    """The way to Postgres of one part and its thread."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        role: str,
        *,
        stopping: Callable[[], bool],
        pause: Callable[[float], object],
        binary: bool = False,
        adapt: Callable[[psycopg.Connection[Any]], None] = lambda connection: None,
        options: str = OPTIONS,
        **connection: Any,
    ) -> None:
        """``binary``: how answers travel; ``adapt`` is given each new connection; the rest goes to psycopg."""
        self._settings = settings
        self._role = role
        self._stopping = stopping
        self._pause = pause
        self._binary = binary
        self._adapt = adapt
        self._more = {"options": options, **connection}
        self._connection: psycopg.Connection[Any] | None = None
        self._backend: Backend | None = None
        self._slow = SlowAnswers(role)

    def __call__(self, name: str, parameters: dict[str, Any], /) -> list[Any]:
        """The answer. Raises Stopping."""
        tries = 0
        while True:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = sql.connect(self._settings, self._role, autocommit=True, **self._more)
                    self._adapt(self._connection)
                    self._backend = Backend.of(self._connection)
                assert self._backend is not None
                self._slow.asked(self._backend)
                try:
                    return self._connection.execute(queries[name], parameters, binary=self._binary).fetchall()
                finally:
                    self._slow.answered()
            except psycopg.OperationalError as error:
                if self._stopping():
                    raise Stopping from None
                problem = (str(error).splitlines() or [repr(error)])[0]
                log.warning("Postgres does not answer the %s, trying again: %s", self._role, problem)
                self._pause(_RETRY_SECONDS[min(tries, len(_RETRY_SECONDS) - 1)])
                tries += 1

    def close(self) -> None:
        """Any thread; a question that is being asked is broken off."""
        self._slow.close()
        if self._connection is not None:
            self._connection.close()
