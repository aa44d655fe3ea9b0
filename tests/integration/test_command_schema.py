"""What the published schema of commands allows is what the database allows, field by field."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from streams.command_models import COMMANDS, Columns, Definition
from streams.names import BLANKS, UNSEEN
from tests.support.numbers import NUMBERS

Conn = psycopg.Connection[tuple[Any, ...]]
SCHEMA = COMMANDS.json_schema()["$defs"]
FIELDS: dict[str, dict[str, Any]] = SCHEMA["Columns"]["properties"]
NUMBERS_OF_COLUMNS = [name for name, field in FIELDS.items() if field.get("type") in ("integer", "number")]
WORDS = [name for name, field in FIELDS.items() if "enum" in field]
SPANS = [name for name, field in FIELDS.items() if "from 0 to" in field.get("description", "")]


@pytest.fixture
def conn(database: str) -> Iterator[Conn]:
    """A transaction that is rolled back, with the job default/job."""
    with psycopg.connect(database) as conn:
        conn.execute("INSERT INTO cronstream.job_definitions (name, cron, handler) VALUES ('job', '@daily', 'log')")
        yield conn
        conn.rollback()


def ask(conn: Conn, **command: Any) -> dict[str, Any]:
    row = conn.execute("SELECT cronstream.apply_command(%s)", [Jsonb({"name": "job", **command})]).fetchone()
    assert row is not None
    answer: dict[str, Any] = row[0]
    return answer


def patched(conn: Conn, name: str, value: Any) -> str | None:
    """How the database refuses that value of a column; None when it takes it."""
    answer = ask(conn, command="patch", id=f"{name} {value}", changes={name: value})
    if answer["accepted"]:
        return None
    assert answer["error"]["field"] == name
    return str(answer["error"]["message"])


def test_every_column_that_the_database_bounds_is_bounded_in_the_schema(conn: Conn) -> None:
    row = conn.execute("SELECT prosrc FROM pg_proc WHERE oid = 'cronstream.explain_bounds'::regproc").fetchone()
    assert row is not None
    bounded = set(re.findall(r"^ +\('(\w+)', ", row[0], re.MULTILINE))
    assert bounded == {*NUMBERS_OF_COLUMNS, *WORDS, *SPANS, "enabled"}


@pytest.mark.parametrize("name", NUMBERS_OF_COLUMNS)
def test_numbers(conn: Conn, name: str) -> None:
    field = FIELDS[name]
    step = (
        (lambda value, to: value + to)
        if field["type"] == "integer"
        else (lambda value, to: math.nextafter(value, to * math.inf))
    )
    least, most, above = field.get("minimum"), field["maximum"], field.get("exclusiveMinimum")
    assert (least is None) != (above is None)
    assert patched(conn, name, most) is None
    assert patched(conn, name, step(above, 1) if least is None else least) is None
    for outside in (step(most, 1), above if least is None else step(least, -1)):
        assert "must be" in str(patched(conn, name, outside))


@pytest.mark.parametrize("written", ["1e400", "-1e400", "1e100000", "9" * 5000])
@pytest.mark.parametrize("name", NUMBERS_OF_COLUMNS)
def test_a_number_that_no_row_can_hold_is_refused_by_its_bounds(conn: Conn, name: str, written: str) -> None:
    text = f'{{"command": "patch", "id": "1", "name": "job", "changes": {{"{name}": {written}}}}}'
    row = conn.execute("SELECT cronstream.apply_command(%s::jsonb)", [text]).fetchone()
    assert row is not None
    error = row[0]["error"]
    assert error["field"] == name
    assert error["message"].startswith(f"{name} must be ")
    assert error["hint"].startswith("Left out, it is ")
    assert sum(map(len, error.values())) < 600


@pytest.mark.parametrize(("number", "held"), NUMBERS.items(), ids=lambda value: str(value)[:20])
def test_what_the_database_holds_of_numbers(conn: Conn, number: str, held: bool) -> None:
    with contextlib.nullcontext() if held else pytest.raises(psycopg.errors.NumericValueOutOfRange):
        conn.execute("SELECT %s::jsonb", [number])


@pytest.mark.parametrize(
    "changes", [{}, [], None, {"": 1}, {"tenant": "a"}, {"run_at": "400000-01-01T00:00:00Z"}], ids=str
)
def test_changes_that_change_nothing_or_mean_nothing_are_refused(conn: Conn, changes: Any) -> None:
    error = ask(conn, command="patch", id="1", changes=changes)["error"]
    assert error["field"] in ("changes", '""', "tenant", "run_at")
    assert error["hint"]


@pytest.mark.parametrize("name", WORDS)
def test_words(conn: Conn, name: str) -> None:
    assert patched(conn, name, "else") == f"{name} must be one of {', '.join(FIELDS[name]['enum'])}"
    assert [patched(conn, name, word) for word in FIELDS[name]["enum"]] == [None] * len(FIELDS[name]["enum"])


@pytest.mark.parametrize("name", SPANS)
def test_spans(conn: Conn, name: str) -> None:
    assert (
        f"An interval {str(patched(conn, name, '40 days')).removeprefix(f'{name} must be ')}."
        == FIELDS[name]["description"]
    )


def test_defaults(conn: Conn) -> None:
    said = {name: value for name, value in Definition(handler="log").model_dump().items() if value is not None}
    assert ask(conn, command="upsert", id="1", name="said", definition={"cron": "@daily", **said})["accepted"]
    rows = conn.execute("SELECT to_jsonb(d) FROM cronstream.job_definitions d ORDER BY name").fetchall()
    by_itself, by_name = ({name: row[0][name] for name in Columns.model_fields} for row in rows)
    assert by_itself == by_name


@pytest.mark.parametrize(("field", "kind"), [("id", "Id"), ("name", "Text"), ("tenant", "Text")])
def test_lengths(conn: Conn, field: str, kind: str) -> None:
    most, definition = SCHEMA[kind]["maxLength"], {"cron": "@daily", "handler": "log"}
    command = {"command": "upsert", "id": "1", "definition": definition}
    assert ask(conn, **{**command, field: "ü" * most})["accepted"]
    with pytest.raises(psycopg.Error, match=f"more than {most}") if field == "id" else conn.transaction():
        answer = ask(conn, **{**command, "id": "2", field: "ü" * (most + 1)})
        assert answer["error"]["field"] == field


def test_characters(conn: Conn) -> None:
    """Over all of Unicode but the surrogates, which no text holds."""
    for function, ranges in (("unseen", UNSEEN), ("blanks", BLANKS)):
        row = conn.execute(
            "SELECT array_agg(code) FROM generate_series(1, 1114111) AS code WHERE code NOT BETWEEN 55296 AND 57343"
            f" AND chr(code) ~ ('[' || cronstream.{function}() || ']')"  # type: ignore[arg-type]
        ).fetchone()
        assert row is not None
        assert set(row[0]) == {code for first, last in ranges for code in range(max(first, 1), last + 1)}


@pytest.mark.parametrize(
    "name", ["a", " a ", "ü é", "日本 語", "a\u00a0b", "", " ", "\u3000", "a\u200db", "\u202e", "\ufffe", "\U000e0041"]
)
def test_names(conn: Conn, name: str) -> None:
    body = {"command": "upsert", "id": "1", "name": name, "definition": {"cron": "@daily", "handler": "log"}}
    try:
        COMMANDS.validate_json(json.dumps(body), strict=True)
        seen = True
    except ValueError:
        seen = False
    assert ask(conn, **body)["accepted"] is seen
