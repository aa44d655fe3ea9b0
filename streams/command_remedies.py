"""What the fields of a command take, in words: the hint of a refusal, from the schema that is published. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from streams.command_models import COMMANDS, NAMES

CONTAINERS = ("definition", "changes")
KNOWN = f"One of {', '.join(NAMES)}."
_SCHEMA = COMMANDS.json_schema()
_LEAST = 3  # letters of a beginning that tells what was meant


def remedy(command: str, path: Sequence[str]) -> str:
    """What that command's field takes."""
    return _words(_fields(command, path[:-1])[path[-1]])


def instead(command: str, path: Sequence[str]) -> str:
    """What to do about a field that the command does not know."""
    *within, key = path
    beside, fields = _fields(command), _fields(command, within)
    if within and key in beside:
        return f"{key} stands beside the {within[0]}, not in it."
    for container in CONTAINERS:
        if not within and container in beside and key in _fields(command, [container]):
            return f"{key} stands in the {container}."
    near = _near(key, fields)
    return f"Did you mean {near}?" if near else f"Known: {', '.join(fields)}."


def _fields(command: str, within: Iterable[str] = ()) -> dict[str, dict[str, Any]]:
    fields: dict[str, dict[str, Any]] = _resolved(_SCHEMA["discriminator"]["mapping"][command])["properties"]
    for container in within:
        fields = _resolved(fields[container]["$ref"])["properties"]
    return fields


def _resolved(reference: str) -> dict[str, Any]:
    found: dict[str, Any] = _SCHEMA["$defs"][reference.rpartition("/")[2]]
    return found


def _words(field: dict[str, Any]) -> str:
    if "description" in field:
        return str(field["description"])
    if "$ref" in field:
        return _words(_resolved(field["$ref"]))
    if "anyOf" in field:
        return _words(field["anyOf"][0])  # the other is null
    if "enum" in field:
        return f"One of {', '.join(field['enum'])}."
    if field.get("format") == "date-time":
        return "Write an instant with its offset: 2026-01-01T00:00:00Z."
    if field["type"] == "boolean":
        return "true or false."
    least = f"from {field['minimum']} to" if "minimum" in field else f"above {field['exclusiveMinimum']} and at most"
    what = "A whole number" if field["type"] == "integer" else "A number"
    return f"{what} {least} {field['maximum']}, without quotes."


def _near(key: str, fields: Iterable[str]) -> str | None:
    """The one that was surely meant: a wrong guess is worse than none."""
    low = key.lower()
    begun = [field for field in fields if len(low) >= _LEAST and (field.startswith(low) or low.startswith(field))]
    near = begun or difflib.get_close_matches(low, list(fields), n=1, cutoff=0.75)
    return near[0] if near else None
