"""The JSON object of a record, and what of it the database would not keep as it is written. Pure.

Postgres keeps numbers digit by digit, but not all of them; of a key that stands twice it keeps one; U+0000 and half a
surrogate pair it does not keep at all. Each of these is a flaw with its path. Only what is no JSON object is not read.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

MOST_DEEP = 200
"""Objects and arrays within one another, the outermost included."""

# Of Postgres' numeric: digits before the decimal point and after it, and what its exponent must stay below.
_BEFORE, _AFTER, _EXPONENT = 131_072, 16_383, (2**31 - 1) // 2
_DIGITS = 4000  # more of them Python does not read as a number
_UNKEPT = re.compile("[\x00\ud800-\udfff]")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)


class NotAnObject(ValueError):
    """No JSON, or no object; the message says which."""


class Flaw(NamedTuple):
    """What the database would not keep, where it stands, and the remedy."""

    path: tuple[str | int, ...]
    says: str
    hint: str


class _Twice(dict[str, Any]):
    """An object some of whose keys stand twice."""

    twice: list[str]


class _Unkept(float):
    """A number that Postgres does not hold."""


def read_object(value: bytes | None) -> dict[str, Any]:
    """The object of a record. Raises NotAnObject.

    A number stands for the written one: whole or not as that is, but no larger than Python takes. What lies deeper
    than MOST_DEEP and one more is left out.
    """
    if not value:
        raise NotAnObject("the record is empty")
    try:
        text = value.decode()
        if text.count("[") + text.count("{") > MOST_DEEP:
            text = _shallow(text)
        body = _DECODER.decode(text)
    except ValueError as error:
        raise NotAnObject(f"not JSON: {error}") from None
    if not isinstance(body, dict):
        raise NotAnObject(f"not a JSON object but {type(body).__name__}")
    return body


def flaws_of(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[Flaw]:
    """What the database would not keep of something that was read, from the outside in."""
    if isinstance(value, str):
        if met := _UNKEPT.search(value):
            yield Flaw(path, f"holds {_named(met[0])}", "Leave it out: the database does not store it.")
    elif isinstance(value, _Unkept):
        hint = f"At most {_BEFORE} digits before the decimal point and {_AFTER} after it; else send it as text."
        yield Flaw(path, "is a number that the database does not hold", hint)
    elif isinstance(value, dict | list):
        if len(path) >= MOST_DEEP:
            yield Flaw(path, f"is nested more than {MOST_DEEP} deep", "Send what lies so deep as text.")
            return
        for key in value.twice if isinstance(value, _Twice) else ():
            yield Flaw((*path, key), "stands twice", "Say each key once: of two, nobody knows which is meant.")
        parts: Iterable[tuple[str | int, Any]] = value.items() if isinstance(value, dict) else enumerate(value)
        for part, each in parts:
            if isinstance(part, str) and (met := _UNKEPT.search(part)):
                hint = "Leave it out of the key: the database does not store it."
                yield Flaw((*path, part), f"is a key that holds {_named(met[0])}", hint)
            yield from flaws_of(each, (*path, part))


def _named(character: str) -> str:
    half = "" if character == "\x00" else ", half of a surrogate pair"
    return f"the character U+{ord(character):04X}{half}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    found = _Twice(made)
    found.twice = [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]
    return found


def _whole(text: str) -> float:
    return _Unkept() if len(text.lstrip("-")) > _BEFORE else int(text[:_DIGITS])


def _decimal(text: str) -> float:
    written, _, exponent = text.lower().partition("e")
    before, _, after = written.lstrip("-").partition(".")
    power = float(exponent or 0)
    zeros = len(before + after) - len((before + after).lstrip("0"))
    if len(before) - zeros + power > _BEFORE and zeros < len(before + after):
        return _Unkept()
    if len(after) - power > _AFTER or abs(power) >= _EXPONENT:
        return _Unkept()
    return max(-sys.float_info.max, min(float(text), sys.float_info.max))


def _constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_whole, parse_float=_decimal, parse_constant=_constant)


def _shallow(text: str) -> str:
    """With null for what lies too deep to be read, whatever that is."""
    kept, begin, depth = [], 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth == MOST_DEEP + 2:
                kept += [text[begin : token.start()], "null"]
                begin = len(text)  # until it ends
        elif token[0] in "]}":
            if depth == MOST_DEEP + 2:
                begin = token.end()
            depth -= 1
    return "".join([*kept, text[begin:]])
