"""Payloads: what the database accepts, workers read; of numbers, it refuses none that they read."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import psycopg
import pytest

from workers.handlers import command, http, kafka, python, sql

READERS: dict[str, type[msgspec.Struct]] = {
    "http": http.Call,
    "command": command.Command,
    "kafka": kafka.ToProduce,
    "sql": sql.Statement,
    "python": python.Call,
}
GOOD: dict[str, dict[str, Any]] = {
    "http": {"url": "https://example.org/"},
    "command": {"argv": ["true"]},
    "kafka": {"topic": "t"},
    "sql": {"connection": "billing", "statement": "SELECT 1"},
    "python": {"entry_point": "reports:close"},
}
NUMBERS = [
    "400",
    "400.0",
    "4e2",
    "4.0E2",
    "4000e-1",
    "400.00e0",
    "1",
    "1.5",
    "0",
    "-0",
    "-0.0",
    "-1",
    "1e-3",
    "1e30",
    "0.0",
]
VALUES = [
    *NUMBERS,
    "null",
    "true",
    '"400"',
    '""',
    "[]",
    "{}",
    '{"a": 1}',
    '{"a": "b"}',
    '["a"]',
    '["a", 1]',
    "[null]",
    "[[]]",
]
LIMITS = list(command.AskedLimits.__struct_fields__)


def verdicts(connection: psycopg.Connection[Any], handler: str, key: str, value: str) -> tuple[bool, bool]:
    """Whether the database accepts a good payload with that key set to that JSON, and whether workers read it."""
    others = {name: given for name, given in GOOD[handler].items() if name != key}
    written = json.dumps(others)[:-1] + (", " if others else "") + f'"{key}": {value}}}'
    row = connection.execute("SELECT %s::jsonb::text", (written,)).fetchone()
    assert row is not None
    try:
        msgspec.json.decode(row[0], type=READERS[handler])
        read = True
    except msgspec.ValidationError:
        read = False
    try:
        connection.execute("SELECT cronstream.check_payload(%s, %s::jsonb)", (handler, written))
    except psycopg.errors.InvalidParameterValue:
        return False, read
    return True, read


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("handler", READERS)
def test_workers_read_every_payload_that_the_database_accepts(
    connection: psycopg.Connection[Any], handler: str
) -> None:
    keys = READERS[handler].__struct_fields__
    lists = [f"[{number}]" for number in NUMBERS]
    limits = [f'{{"{name}": {value}}}' for name, value in itertools.product(LIMITS, VALUES)]
    unread = [
        (key, value)
        for key in keys
        for value in (*VALUES, *lists, *(limits if key == "limits" else ()))
        if verdicts(connection, handler, key, value) == (True, False)
    ]
    assert unread == []


@pytest.mark.parametrize(
    ("handler", "key", "template", "lowest", "highest"),
    [
        ("http", "retry_on", "[{}]", 300, 999),
        ("http", "timeout_seconds", "{}", 1e-9, 86400),
        ("command", "final_exit_codes", "[{}]", 1, 255),
        ("python", "final_exit_codes", "[{}]", 1, 255),
        *(("command", "limits", f'{{{{"{name}": {{}}}}}}', 1, 10**9) for name in LIMITS),
    ],
)
def test_of_numbers_within_their_bounds_the_database_accepts_those_that_workers_read(
    connection: psycopg.Connection[Any], handler: str, key: str, template: str, lowest: float, highest: float
) -> None:
    for number in ("300", "300.0", "3e2", "255", "255.0", "2550e-1", "1", "1.0", "10.5"):
        accepted, read = verdicts(connection, handler, key, template.format(number))
        assert accepted is (read and lowest <= float(number) <= highest), number


@pytest.mark.parametrize(("depth", "accepted"), [(200, True), (201, False), (2000, False)])
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_what_lies_too_deep_for_the_worker_s_reader_is_refused(
    database: str, brackets: str, depth: int, accepted: bool
) -> None:
    opening, closing = ("[", "]") if brackets == "[]" else ('{"a": ', "}")
    written = opening * (depth - 1) + brackets + closing * (depth - 1)
    with psycopg.connect(database, autocommit=True) as connection:
        if accepted:
            connection.execute("SELECT cronstream.check_payload('log', %s::jsonb)", (written,))
            msgspec.json.decode(written)
            return
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="payload is nested more than 200 deep"):
            connection.execute("SELECT cronstream.check_payload('log', %s::jsonb)", (written,))
