"""From records of the commands topic to commands, and from answers to records. Pure."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from cronstream.dead_letters import Record
from streams.command_models import COMMANDS, NAMES, Addressed, Columns, Command, Id, Text
from streams.names import is_unseen

_CONTAINERS = ("definition", "changes")
_SAYS = {
    "extra_forbidden": "is no field of this command",
    "missing": "is missing",
    "union_tag_not_found": "is missing",
    "union_tag_invalid": "is none that is known",
    "string_pattern_mismatch": "is blank, or has a character that cannot be seen",
}
_INSTANT = "Write an instant with its offset: 2026-01-01T00:00:00Z."
_HINTS = {
    "union_tag_not_found": f"One of {', '.join(NAMES)}.",
    "union_tag_invalid": f"One of {', '.join(NAMES)}.",
    "timezone_aware": _INSTANT,
    "datetime_parsing": _INSTANT,
    "datetime_from_date_parsing": _INSTANT,
    "datetime_type": _INSTANT,
    "string_pattern_mismatch": "Characters that can be seen, and spaces.",
}


class PoisonCommand(ValueError):
    """A record that cannot be answered under an id: no JSON object, or without a usable id."""


class Sender(BaseModel):
    """As much of a command as its answer needs; what cannot be used is left out."""

    model_config = ConfigDict(strict=True)

    id: Id
    tenant: Text = "default"
    name: Text | None = None
    kind: Annotated[str, BeforeValidator(lambda given: given if given in NAMES else "unknown")] = "unknown"


class RefusedCommand(ValueError):
    """A command that means nothing: whose it is, and what is wrong, as it is answered."""

    def __init__(self, sender: Sender, message: str, **more: str) -> None:
        super().__init__(message)
        self.sender = sender
        self.error = {"code": "invalid", "message": message, **more}


def decode(key: bytes | None, value: bytes | None) -> Command:
    """The command of a record. Raises PoisonCommand, RefusedCommand.

    What was read as a command means the same to the database, which is given the record's own text: no key of it
    is unknown or stands twice, and no number was rounded on the way.
    """
    body = _object(value)
    twice = _keys_that_stand_twice(value or b"")
    if "id" in twice.outermost:
        raise PoisonCommand("id stands twice")
    sender = sender_of(body)
    if twice.anywhere:
        hint = "Say each key once: of two, nobody knows which is meant."
        raise RefusedCommand(sender, f"{twice.anywhere[0]}: stands twice", field=twice.anywhere[0], hint=hint)
    if _holds_nul(body):
        hint = "Leave it out: the database does not store it."
        raise RefusedCommand(sender, "the command holds the character U+0000", hint=hint)
    try:
        command = COMMANDS.validate_json(value or b"", strict=True)
    except ValidationError as error:
        raise _explained(sender, body, error) from None
    said = f"{command.tenant}/{command.name}"
    if key is not None and key != said.encode():
        hint = f"Send it under the key {said}: commands of one key keep their order."
        raise RefusedCommand(sender, "key is not the job's tenant/name", field="key", hint=hint)
    return command


def result_of(record: Record, answer: Mapping[str, Any]) -> tuple[bytes | None, bytes]:
    """The key and value of the record that carries an answer."""
    key = record.key
    if key is None and answer.get("name") is not None:
        key = f"{answer['tenant']}/{answer['name']}".encode()
    return key, orjson.dumps(dict(answer))


def poison_answer(record: Record, problem: str) -> dict[str, Any]:
    """What can be said about a record that has no id: where it is, and what is wrong."""
    place = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    error = {"code": "poison", "message": problem, "hint": "A command is a JSON object with an id of its own."}
    return {"id": None, "accepted": False, "record": place, "error": error}


def refusal(sender: Sender, error: Mapping[str, str]) -> dict[str, Any]:
    """The answer to a command that is refused and cannot be stored."""
    who = {"id": sender.id, "command": sender.kind, "tenant": sender.tenant, "name": sender.name}
    return {**who, "accepted": False, "error": dict(error)}


def sender_of(body: Mapping[str, Any]) -> Sender:
    """Whose command it is. Raises PoisonCommand when it has no usable id."""
    given = {"id": body.get("id"), "kind": body.get("command")}
    given |= {name: body[name] for name in ("tenant", "name") if name in body}
    while True:
        try:
            return Sender.model_validate(given)
        except ValidationError as error:
            wrong = {str(problem["loc"][0]) for problem in error.errors()}
            if "id" in wrong:
                shown = json.dumps(body.get("id"))[:80]
                raise PoisonCommand(
                    f"id must be a text of 1 to 200 characters that can be seen, and spaces; it is {shown}"
                ) from None
            for name in wrong:
                del given[name]


def _object(value: bytes | None) -> dict[str, Any]:
    if not value:
        raise PoisonCommand("the record is empty")
    try:
        body = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise PoisonCommand(f"not JSON: {error}") from None
    if not isinstance(body, dict):
        raise PoisonCommand(f"not a JSON object but {type(body).__name__}")
    return body


class _Twice(NamedTuple):
    anywhere: list[str]
    outermost: list[str]


def _keys_that_stand_twice(value: bytes) -> _Twice:
    """The keys that some object, and the outermost one, has more than once. Of valid JSON that is an object."""
    found = _Twice([], [])

    def look(pairs: list[tuple[str, Any]]) -> None:
        counts = Counter(key for key, _ in pairs)
        found.outermost[:] = [key for key, count in counts.items() if count > 1]  # it comes last
        found.anywhere.extend(found.outermost)

    try:
        json.loads(value, object_pairs_hook=look)
    except RecursionError:
        raise PoisonCommand("it is nested too deeply") from None
    return found


def _explained(sender: Sender, body: Mapping[str, Any], error: ValidationError) -> RefusedCommand:
    """The first problem, by its field and with a remedy where one is known."""
    problem = error.errors()[0]
    kind, path = problem["type"], [str(part) for part in problem["loc"][1:]]
    # A definition's columns go by their own names, as in SQL.
    field = ".".join(path[1:] if len(path) > 1 and path[0] in _CONTAINERS else path) or "command"
    hint = _near(path) if kind == "extra_forbidden" else _HINTS.get(kind)
    says = _SAYS.get(kind) or problem["msg"][:1].lower() + problem["msg"][1:]
    more = {"hint": hint, "detail": _unseen_in(problem["input"]) if kind == "string_pattern_mismatch" else None}
    return RefusedCommand(sender, f"{field}: {says}", field=field, **{key: text for key, text in more.items() if text})


def _unseen_in(text: str) -> str | None:
    """Where the first character is that a name must not hold, as SQL says it."""
    place = next((index for index, one in enumerate(text) if is_unseen(one)), None)
    return None if place is None else f"It has U+{ord(text[place]):04X} as character {place + 1}."


def _near(path: list[str]) -> str | None:
    fields = Columns.model_fields if path[0] in _CONTAINERS else {**Addressed.model_fields, "command": None}
    near = difflib.get_close_matches(path[-1], list(fields), n=1)
    return f"Did you mean {near[0]}?" if near else f"Known: {', '.join(fields)}."


def _holds_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any("\x00" in key or _holds_nul(each) for key, each in value.items())
    return isinstance(value, list) and any(map(_holds_nul, value))
