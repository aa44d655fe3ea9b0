"""As much of JSON Schema as our OpenAPI document uses."""

from __future__ import annotations

from typing import Any

_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
    "null": type(None),
}
_USED = {"type", "enum", "properties", "required", "items", "minimum", "maximum", "maxItems", "$ref"}
_SAID = {"description", "format", "default"}


def violations(value: Any, schema: dict[str, Any], schemas: dict[str, Any], at: str = "$") -> list[str]:
    """What of the value the schema does not allow; an object's member that no property describes included."""
    if "$ref" in schema:
        return violations(value, schemas[schema["$ref"].rpartition("/")[2]], schemas, at)
    unknown = schema.keys() - _USED - _SAID
    assert not unknown, f"{at}: this checker does not know {unknown}"
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at}: {value!r} is none of {schema['enum']}"]
    kinds = schema.get("type", [])
    allowed = [kinds] if isinstance(kinds, str) else kinds
    if allowed and not any(_is(value, kind) for kind in allowed):
        return [f"{at}: {value!r} is no {allowed}"]
    if isinstance(value, dict):
        return _object_violations(value, schema, schemas, at)
    if isinstance(value, list):
        found = [f"{at}: too many"] if len(value) > schema.get("maxItems", len(value)) else []
        for index, member in enumerate(value):
            found += violations(member, schema["items"], schemas, f"{at}[{index}]")
        return found
    if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        return [f"{at}: {value} is out of bounds"]
    return []


def _object_violations(value: dict[str, Any], schema: dict[str, Any], schemas: dict[str, Any], at: str) -> list[str]:
    properties = schema["properties"]
    found = [f"{at}: {name} is missing" for name in schema["required"] if name not in value]
    for name, member in value.items():
        if name not in properties:
            found.append(f"{at}: {name} is not described")
        else:
            found += violations(member, properties[name], schemas, f"{at}.{name}")
    return found


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
