"""``sql``: one statement a run, on a connection that the worker's settings name.

Payload: ``{"connection": "billing", "statement": "…", "parameters"?: {…}}``. The
statement names its parameters as ``%(name)s``; those of the identity
(``%(idempotency_key)s`` …) are always there. Values are sent beside the
statement, as text that the server reads as the type that stands there.

    done                                    succeeded; output: {"rows": n}
    SQLSTATE classes 0A, 21, 22, 23, 42     failed for good: the same statement gets the same answer
    any other error, no connection          failed; tried again
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import psycopg
from psycopg import generators, pq
from psycopg.abc import PQGen

from cronstream.clock import Clock
from cronstream.settings import WorkerSettings
from workers.attempt import Attempt, BadPayload, PayloadReader, Result, failed, refused, succeeded
from workers.handlers.sql_connections import read_connections
from workers.handlers.sql_pool import Pool

SPARE_MS = 1000
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_FINAL_CLASSES = frozenset({"0A", "21", "22", "23", "42"})


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The payload of an ``sql`` job."""

    connection: str
    statement: str
    parameters: dict[str, Any] = {}


_statements = PayloadReader(Statement, "a statement")


class NotOneStatement(ValueError):
    """A statement that this handler does not run."""


class SqlHandler:
    """Each named connection has a pool of its own."""

    def __init__(self, settings: WorkerSettings, clock: Clock) -> None:
        self._clock = clock
        name = f"{settings.installation} {settings.node}"[:63]
        self._pools = {key: Pool(entry, name) for key, entry in read_connections(settings.sql_connections).items()}

    async def run(self, attempt: Attempt) -> Result:
        asked = _statements.read(attempt)
        pool = self._pools.get(asked.connection)
        if pool is None:
            return refused(f"no connection {asked.connection[:100]!r} on this worker (CRONSTREAM_SQL_CONNECTIONS)")
        text, values = numbered(asked.statement, {**asked.parameters, **attempt.identity})
        attempt.waits_for = f"a connection to {asked.connection}: its statement was not sent"
        try:
            async with pool.connection(attempt.work.tenant) as connection:
                attempt.waits_for = None
                left_ms = max(0, attempt.deadline_us - self._clock.wall_us()) // 1000
                # A little more than is left: the deadline cancels it first, unless this worker cannot.
                await connection.execute(f"SET statement_timeout = {left_ms + SPARE_MS}")
                rows = await connection.wait(_execute(connection.pgconn, text, values))
        except NotOneStatement as error:
            return refused(str(error))
        except psycopg.Error as error:
            return failed(_text_of(error), final=(error.sqlstate or "")[:2] in _FINAL_CLASSES)
        return succeeded(msgspec.json.encode({"rows": rows}).decode())

    async def close(self) -> None:
        for pool in self._pools.values():
            await pool.close()


def numbered(statement: str, parameters: Mapping[str, Any]) -> tuple[bytes, list[bytes | None]]:
    """The statement with $1, $2 … for its named parameters, and their values. Raises BadPayload."""
    names: dict[str, int] = {}
    text = _PLACEHOLDER.sub(lambda found: f"${names.setdefault(found[1], len(names) + 1)}", statement)
    missing = sorted(names.keys() - parameters.keys())
    if missing:
        raise BadPayload(f"the statement names parameters that are not there: {', '.join(missing)[:200]}")
    try:
        return text.encode(), [_as_text(parameters[name]) for name in names]
    except UnicodeEncodeError:
        raise BadPayload("the payload has a lone surrogate, which is no text") from None


def _as_text(value: object) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else msgspec.json.encode(value)


def _execute(pgconn: pq.abc.PGconn, text: bytes, values: list[bytes | None]) -> PQGen[int]:
    """Run it by the extended protocol, which takes one statement only; how many rows it was about.

    Rows are counted one by one as they come: a large answer is nobody's memory.
    """
    pgconn.send_query_params(text, values)
    pgconn.set_single_row_mode()
    yield from generators.send(pgconn)
    rows = 0
    problem: psycopg.Error | NotOneStatement | None = None
    while (result := (yield from generators.fetch(pgconn))) is not None:
        if result.status == pq.ExecStatus.SINGLE_TUPLE:
            rows += 1
        elif result.status == pq.ExecStatus.COMMAND_OK:
            rows = result.command_tuples or 0
        elif result.status == pq.ExecStatus.EMPTY_QUERY:
            raise NotOneStatement("the statement is empty: it has nothing but comments, blanks and semicolons")
        elif result.status in _COPY:
            raise NotOneStatement("COPY moves data that this handler does not have")
        elif result.status != pq.ExecStatus.TUPLES_OK:
            problem = psycopg.errors.error_from_result(result)
    if problem is not None:
        raise problem
    return rows


_COPY = (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT, pq.ExecStatus.COPY_BOTH)


def _text_of(error: psycopg.Error) -> str:
    """What the server said; of a connection that failed, without its parameters."""
    diagnosis = error.diag.message_primary
    return f"{error.sqlstate}: {diagnosis}" if diagnosis else f"{type(error).__name__}: {error}".strip()
