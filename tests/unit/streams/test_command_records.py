"""Commands as they come: what is read, what is refused by field and with a remedy, what is poison."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest
from pydantic import ValidationError

from cronstream.dead_letters import Record
from sql.migrate import MIGRATIONS
from streams.command_models import COMMANDS, NAMES, Columns, Command, schema
from streams.command_records import PoisonCommand, RefusedCommand, decode, poison_answer, result_of
from streams.json_objects import MOST_DEEP
from tests.support.numbers import NUMBERS

ROOT = Path(__file__).parents[3]
RUN_NOW: dict[str, Any] = {"command": "run-now", "id": "c1", "name": "job"}
UPSERT: dict[str, Any] = {"command": "upsert", "id": "c1", "name": "job", "definition": {"handler": "log"}}
RANGE = {"begins": "2026-01-01T00:00:00Z", "ends": "2026-01-02T00:00:00+01:00"}
BACKFILL: dict[str, Any] = {"command": "backfill", "id": "c1", "name": "job", **RANGE}


def read(body: Any, key: bytes | None = None) -> Command:
    return decode(key, json.dumps(body).encode())


def test_every_command_has_a_model_and_a_branch_in_sql() -> None:
    models = {get_args(model.model_fields["command"].annotation)[0] for model in get_args(Command)}
    assert models == set(NAMES)
    (file,) = MIGRATIONS.glob("*_commands.sql")
    text = file.read_text()
    applied = text[text.index("FUNCTION cronstream.apply_command") :]
    assert {name for name in NAMES if f"WHEN '{name}' THEN" in applied} == set(NAMES)


def test_the_columns_are_those_of_sql() -> None:
    (file,) = MIGRATIONS.glob("*_edits.sql")
    text = file.read_text()
    listed = re.search(r"FUNCTION cronstream\.definition_columns.*?ARRAY\[(.*?)\]", text, re.DOTALL)
    assert listed is not None
    assert re.findall(r"'(\w+)'", listed[1]) == list(Columns.model_fields)


def test_the_published_schema_is_current() -> None:
    published = (ROOT / "docs" / "commands.schema.json").read_text()
    assert published == schema(), "python -m streams.command_models > docs/commands.schema.json"


@pytest.mark.parametrize(
    ("body", "field", "says"),
    [
        ({**RUN_NOW, "command": "run"}, "command", "One of run-now, backfill"),
        ({"id": "c1", "name": "job"}, "command", "is missing"),
        ({**RUN_NOW, "command": ["run-now"]}, "command", "none that is known"),
        ({"command": "run-now", "id": "c1"}, "name", "is missing"),
        ({**RUN_NOW, "name": 5}, "name", "valid string"),
        ({**RUN_NOW, "name": ""}, "name", "at least 1 character"),
        ({**RUN_NOW, "tenant": None}, "tenant", "valid string"),
        ({**RUN_NOW, "tennant": "acme"}, "tennant", "Did you mean tenant?"),
        ({**UPSERT, "definition": {"handler": "log", "crn": "* * * * *"}}, "crn", "Did you mean cron?"),
        ({**UPSERT, "definition": {"cron": "* * * * *"}}, "handler", "is missing"),
        ({**UPSERT, "definition": {"handler": "log", "max_attempts": "5"}}, "max_attempts", "valid integer"),
        ({**UPSERT, "definition": {"handler": "log", "jitter": "some"}}, "jitter", "'full', 'equal' or 'none'"),
        ({**UPSERT, "definition": {"handler": "log", "run_at": "2026-01-01"}}, "run_at", "2026-01-01T00:00:00Z"),
        ({**UPSERT, "definition": "cron"}, "definition", "object"),
        ({**BACKFILL, "begins": "2026-01-01T00:00:00"}, "begins", "with its offset"),
        ({**BACKFILL, "begins": 1767225600}, "begins", "with its offset"),
        ({**RUN_NOW, "name": "  "}, "name", "is blank, or has a character that cannot be seen"),
        ({**RUN_NOW, "tenant": "a\u202eb"}, "tenant", "It has U+202E as character 2."),
        ({**RUN_NOW, "name": "\U000e0041"}, "name", "It has U+E0041 as character 1."),
        ({**RUN_NOW, "name": "x" * 256}, "name", "at most 255 characters"),
        ({**RUN_NOW, "name": "a\x00b"}, "name", "U+0000"),
        ({**UPSERT, "definition": {"handler": "log", "payload": {"a": ["\x00"]}}}, "payload.a.0", "U+0000"),
        ({**RUN_NOW, "na\x00me": "b"}, "na\ufffdme", "U+0000"),
        ({**RUN_NOW, "name": "\ud800"}, "name", "U+D800, half of a surrogate pair"),
        ({**UPSERT, "definition": {"handler": "log", "payload": {"\udfff": 1}}}, "payload.\ufffd", "U+DFFF"),
        ({**RUN_NOW, "timeout": 5}, "timeout", "Known: id, tenant, name, command."),
        ({**BACKFILL, "begin": "2026-01-01T00:00:00Z"}, "begin", "Did you mean begins?"),
        ({**UPSERT, "cron": "@daily"}, "cron", "cron stands in the definition."),
        (
            {**UPSERT, "definition": {"handler": "log", "tenant": "a"}},
            "tenant",
            "stands beside the definition, not in it",
        ),
        ({**UPSERT, "definition": {"handler": "log", "timeout": 5}}, "timeout", "Did you mean timeout_seconds?"),
        ({**UPSERT, "definition": {"handler": "log", "retries": 5}}, "retries", "Known: cron, every"),
        ({**UPSERT, "definition": {"handler": "log", "": 5}}, '""', "is no field of this command"),
        ({**UPSERT, "definition": {"handler": "log", "every": 5}}, "every", "An interval: '90 seconds'"),
        ({**UPSERT, "definition": {"handler": "log", "k" * 500: 5}}, "k" * 40 + "…", "Known: cron, every"),
    ],
)
def test_a_command_that_means_nothing_is_refused_by_its_field_with_a_remedy(
    body: dict[str, Any], field: str | None, says: str
) -> None:
    with pytest.raises(RefusedCommand) as caught:
        read(body)
    error = caught.value.error
    assert caught.value.sender.id == "c1"
    assert error["field"] == field
    assert error["hint"]
    assert says in f"{error['message']} {error.get('detail')} {error['hint']}"
    orjson.dumps(error)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"command": "run-now", "id": "c1", "name": "a", "name": "b"}', "name"),
        ('{"command": "pause", "id": "c1", "name": "a", "command": "resume"}', "command"),
        ('{"command": "patch", "id": "c1", "name": "a", "changes": {"cron": "@daily", "c\\u0072on": null}}', "cron"),
        ('{"command": "patch", "id": "c1", "name": "a", "changes": {"payload": [{"x": 1, "x": 1}]}}', "payload.0.x"),
    ],
)
def test_a_key_that_stands_twice_is_refused_rather_than_chosen(text: str, field: str) -> None:
    with pytest.raises(RefusedCommand, match="stands twice") as caught:
        decode(None, text.encode())
    assert (caught.value.sender.id, caught.value.error["field"]) == ("c1", field)


@pytest.mark.parametrize("wrong", [None, True, 5, 0.5, "", "\u3000", "x" * 256, "else", [], {}, {"": 1}], ids=repr)
@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_model_refuses_has_a_field_and_a_remedy(name: str, wrong: Any) -> None:
    """Every field of every command, left out and with values of every kind."""
    whole = {"command": name, "id": "c1", "name": "job"}
    containers = ({}, {"definition": {}}, {"changes": {}})
    bodies = [
        {**whole, **container, **more} for container in containers for more in ({}, RANGE, {"run_at": RANGE["ends"]})
    ]
    bodies += [
        {**whole, field: wrong} for field in ("tenant", "name", "definition", "changes", "begins", "run_at", "x")
    ]
    for field in (*Columns.model_fields, "id", "x"):
        bodies += [{**whole, container: {"handler": "log", field: wrong}} for container in ("definition", "changes")]
    refusals = []
    for body in bodies:
        try:
            read(body)
        except RefusedCommand as refused:
            refusals.append(refused)
    assert refusals
    for refused in refusals:
        assert refused.sender.id == "c1"
        assert refused.error["field"] != "command"
        assert refused.error["message"].startswith(f"{refused.error['field']}: ")
        assert refused.error["hint"].endswith((".", "?"))


def test_every_kind_of_refusal_that_pydantic_gives_is_met() -> None:
    """The walk above is no stronger than what it meets."""
    met = set()
    for field in Columns.model_fields:
        for wrong in (None, True, 5, "else", [], {}):
            try:
                COMMANDS.validate_json(
                    json.dumps({**UPSERT, "definition": {"handler": "log", field: wrong}}), strict=True
                )
            except ValidationError as error:
                met |= {each["type"] for each in error.errors()}
    assert met >= {"string_type", "int_type", "float_type", "bool_type", "literal_error", "datetime_type"}


@pytest.mark.parametrize(("number", "held"), NUMBERS.items(), ids=lambda value: str(value)[:20])
def test_a_number_that_the_database_holds_is_read_however_large(number: str, held: bool) -> None:
    text = '{"command": "patch", "id": "c1", "name": "job", "changes": {"payload": [%s]}}'
    if held:
        assert decode(None, (text % number).encode()).id == "c1"
        return
    with pytest.raises(RefusedCommand, match=r"payload\.0: is a number that the database does not hold") as caught:
        decode(None, (text % number).encode())
    assert caught.value.error["hint"]


@pytest.mark.parametrize("number", ["1e400", "1e100000", "9" * 5000, "-1e-400", "1e-5000"])
def test_a_number_is_a_number_to_its_column_whatever_its_size(number: str) -> None:
    text = '{"command": "patch", "id": "c1", "name": "job", "changes": {"%s": %s}}'
    assert decode(None, (text % ("timeout_seconds", number)).encode()).id == "c1"
    if "e" in number:
        with pytest.raises(RefusedCommand, match="max_attempts: input should be a valid integer") as caught:
            decode(None, (text % ("max_attempts", number)).encode())
        assert caught.value.error["hint"] == "A whole number from 1 to 1000, without quotes."


@pytest.mark.parametrize("depth", [MOST_DEEP, MOST_DEEP + 1, MOST_DEEP + 2, 5000])
@pytest.mark.parametrize("deep", ["[%s]", '{"a\\"": [1, %s, "]"]}'], ids=["lists", "objects"])
def test_what_is_nested_too_deep_is_refused_under_its_id(deep: str, depth: int) -> None:
    inner, levels = "0", 2  # the command and its changes
    while levels < depth:
        inner, levels = deep % inner, levels + deep.count("[") + deep.count("{")
    value = b'{"command": "patch", "changes": {"payload": ' + inner.encode() + b'}, "name": "job", "id": "c1"}'
    if levels <= MOST_DEEP:
        assert decode(None, value).id == "c1"
        return
    with pytest.raises(RefusedCommand, match=f"is nested more than {MOST_DEEP} deep") as caught:
        decode(None, value)
    assert caught.value.sender.id == "c1"
    assert len(caught.value.error["field"]) < 300


def test_a_key_is_the_job_s_or_none() -> None:
    assert read(RUN_NOW, b"default/job") == read(RUN_NOW)
    with pytest.raises(RefusedCommand, match="key: is not the job's tenant/name") as caught:
        read(RUN_NOW, b"job")
    assert "under the key default/job" in caught.value.error["hint"]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "empty"),
        (b"", "empty"),
        (b"run job", "not JSON"),
        (b'{"id": "\xff"}', "not JSON"),
        (b"[]", "not a JSON object but list"),
        (
            b'{"command": "run-now", "name": "job"}',
            "id must be a text of 1 to 200 characters that can be seen, and spaces; it is null",
        ),
        (b'{"id": 5}', "it is 5"),
        (b'{"id": ""}', 'it is ""'),
        (b'{"id": "a\\u0000"}', "id must be"),
        (b'{"id": " "}', 'it is " "'),
        (json.dumps({"id": "\u3000 "}).encode(), r'it is "\u3000 "'),
        (json.dumps({"id": "a\u202eb"}).encode(), r'it is "a\u202eb"'),
        (b'{"id": "a", "id": "b", "command": "run-now", "name": "job"}', "id stands twice"),
        (b'{"id": "a", "i\\u0064": "a"}', "id stands twice"),
        (b'{"id": "a", "x": NaN}', "not JSON: NaN is no JSON number"),
        (b'{"id": "a", "x": 01}', "not JSON"),
        (b'{"id": "\\ud800"}', "id must be"),
        (b'{"id": "a", "x": ' + b"[" * 5000, "not JSON"),
        (b'{"id": "a", "x": ' + b'["' * 5000, "not JSON"),
        (json.dumps({"id": "x" * 201}).encode(), "id must be"),
    ],
)
def test_without_an_id_nobody_can_be_answered(value: bytes | None, says: str) -> None:
    with pytest.raises(PoisonCommand) as caught:
        decode(None, value)
    assert says in str(caught.value)


def record(key: bytes | None) -> Record:
    return Record("commands", 2, 17, key, b"?", [])


def test_an_answer_goes_under_the_command_s_key() -> None:
    answer = {"id": "c1", "tenant": "acme", "name": "job", "accepted": True}
    assert result_of(record(b"acme/job"), answer)[0] == b"acme/job"
    key, value = result_of(record(None), answer)
    assert (key, json.loads(value)) == (b"acme/job", answer)
    assert result_of(record(None), {**answer, "name": None})[0] is None


def test_poison_is_answered_by_its_place() -> None:
    answer = poison_answer(record(b"k"), "not JSON")
    assert (answer["id"], answer["accepted"]) == (None, False)
    assert answer["record"] == {"topic": "commands", "partition": 2, "offset": 17}
