"""Commands as they come: what is read, what is refused by field and with a remedy, what is poison."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from cronstream.dead_letters import Record
from sql.migrate import MIGRATIONS
from streams.command_models import NAMES, Columns, Command, schema
from streams.command_records import PoisonCommand, RefusedCommand, decode, poison_answer, result_of

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
    (file,) = MIGRATIONS.glob("*_requests.sql")
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
        ({**RUN_NOW, "name": "a\x00b"}, None, "U+0000"),
        ({**UPSERT, "definition": {"handler": "log", "payload": {"a": ["\x00"]}}}, None, "U+0000"),
    ],
)
def test_a_command_that_means_nothing_is_refused_by_its_field_with_a_remedy(
    body: dict[str, Any], field: str | None, says: str
) -> None:
    with pytest.raises(RefusedCommand) as caught:
        read(body)
    error = caught.value.error
    assert caught.value.sender.id == "c1"
    assert error.get("field") == field
    assert says in f"{error['message']} {error.get('detail')} {error.get('hint')}"


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"command": "run-now", "id": "c1", "name": "a", "name": "b"}', "name"),
        ('{"command": "pause", "id": "c1", "name": "a", "command": "resume"}', "command"),
        ('{"command": "patch", "id": "c1", "name": "a", "changes": {"cron": "@daily", "c\\u0072on": null}}', "cron"),
        ('{"command": "patch", "id": "c1", "name": "a", "changes": {"payload": [{"x": 1, "x": 1}]}}', "x"),
    ],
)
def test_a_key_that_stands_twice_is_refused_rather_than_chosen(text: str, field: str) -> None:
    with pytest.raises(RefusedCommand, match="stands twice") as caught:
        decode(None, text.encode())
    assert (caught.value.sender.id, caught.value.error["field"]) == ("c1", field)


def test_a_key_is_the_job_s_or_none() -> None:
    assert read(RUN_NOW, b"default/job") == read(RUN_NOW)
    with pytest.raises(RefusedCommand, match="key is not the job's tenant/name") as caught:
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
