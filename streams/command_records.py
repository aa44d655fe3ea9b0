"""From records of the commands topic to commands, and from answers to records. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from cronstream.dead_letters import Record
from streams.command_models import COMMANDS, NAMES, Command, Id, Text
from streams.command_remedies import CONTAINERS, KNOWN, instead, remedy
from streams.json_objects import NotAnObject, flaws_of, read_object
from streams.names import is_unseen

_SAYS = {
    "extra_forbidden": "is no field of this command",
    "missing": "is missing",
    "union_tag_not_found": "is missing",
    "union_tag_invalid": "is none that is known",
    "string_pattern_mismatch": "is blank, or has a character that cannot be seen",
}
_MOST_SHOWN = 40
_MOST_OF_A_PATH = 200


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

    def __init__(self, sender: Sender, says: str, *, field: str, hint: str, detail: str | None = None) -> None:
        super().__init__(message := f"{field}: {says}")
        self.sender = sender
        self.error = {"code": "invalid", "message": message, "field": field, "hint": hint}
        if detail is not None:
            self.error["detail"] = detail


def decode(key: bytes | None, value: bytes | None) -> Command:
    """The command of a record. Raises PoisonCommand, RefusedCommand.

    What was read as a command means the same to the database, which is given the record's own text: no key of it is
    unknown or stands twice, and it holds nothing that the database does not. Numbers are as large
    as that text says.
    """
    body = _object(value)
    sender = _sender(body)
    for flaw in flaws_of(body):
        if flaw.path == ("id",):
            raise PoisonCommand(f"id {flaw.says}")
        raise RefusedCommand(sender, flaw.says, field=_field(flaw.path), hint=flaw.hint)
    try:
        command = COMMANDS.validate_json(json.dumps(body), strict=True)
    except ValidationError as error:
        raise _explained(sender, error) from None
    said = f"{command.tenant}/{command.name}"
    if key is not None and key != said.encode():
        hint = f"Send it under the key {said}: commands of one key keep their order."
        raise RefusedCommand(sender, "is not the job's tenant/name", field="key", hint=hint)
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


def sender_of(value: bytes | None) -> Sender:
    """Whose command a record is. Raises PoisonCommand when it has no usable id."""
    return _sender(_object(value))


def _sender(body: Mapping[str, Any]) -> Sender:
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
    try:
        return read_object(value)
    except NotAnObject as error:
        raise PoisonCommand(str(error)) from None


def _explained(sender: Sender, error: ValidationError) -> RefusedCommand:
    """The first problem, by its field and with a remedy."""
    problem = error.errors()[0]
    kind = problem["type"]
    says = _SAYS.get(kind) or problem["msg"][:1].lower() + problem["msg"][1:]
    if not problem["loc"]:
        return RefusedCommand(sender, says, field="command", hint=KNOWN)
    command, *path = map(str, problem["loc"])
    hint = instead(command, path) if kind == "extra_forbidden" else remedy(command, path)
    detail = _unseen_in(problem["input"]) if kind == "string_pattern_mismatch" else None
    return RefusedCommand(sender, says, field=_field(path), hint=hint, detail=detail)


def _field(path: Sequence[str | int]) -> str:
    """A field by its path, short and fit to be stored. A definition's columns go by their own names, as in SQL."""
    within = path[1:] if len(path) > 1 and path[0] in CONTAINERS else path
    field = ".".join(_shown(str(part)) for part in within)
    return field if len(field) <= _MOST_OF_A_PATH else field[:_MOST_OF_A_PATH] + "…"


def _shown(key: str) -> str:
    seen = "".join("\ufffd" if is_unseen(one) or "\ud800" <= one <= "\udfff" else one for one in key[:_MOST_SHOWN])
    return (seen or '""') + ("…" if len(key) > _MOST_SHOWN else "")


def _unseen_in(text: str) -> str | None:
    """Where the first character is that a name must not hold, as SQL says it."""
    place = next((index for index, one in enumerate(text) if is_unseen(one)), None)
    return None if place is None else f"It has U+{ord(text[place]):04X} as character {place + 1}."
