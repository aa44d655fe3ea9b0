"""The parameters of a question over HTTP: read, or refused by name. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping

from cronstream.schedule.errors import ScheduleError, quoted
from cronstream.schedule.instants import parse_instant

LARGEST_ID = (1 << 63) - 1
_MOST_DIGITS = len(str(LARGEST_ID))


class BadQuestion(ValueError):
    """A parameter that is unknown or means nothing; the message names it and says what is allowed."""


def known(names: Iterable[str], allowed: Collection[str]) -> None:
    """Raises BadQuestion for a name of the query that the page does not know, or that comes twice."""
    seen = set()
    for name in names:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            takes = f"this page takes {', '.join(sorted(allowed))}" if allowed else "this page takes none"
            raise BadQuestion(f"there is no parameter {quoted(name)}{meant}: {takes}")
        if name in seen:
            raise BadQuestion(f"{name} is given twice: say it once")
        seen.add(name)


def number(given: Mapping[str, str], name: str, default: int | None, least: int, most: int) -> int:
    """A whole number within bounds; ``default`` where it is left out. Raises BadQuestion."""
    text = given.get(name)
    if text is None and default is not None:
        return default
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
    if text is None or not is_number or not least <= int(text) <= most:
        raise BadQuestion(f"{name} is a whole number from {least} to {most}, not {quoted(text)}")
    return int(text)


def one_of(given: Mapping[str, str], name: str, allowed: Collection[str]) -> str | None:
    """One of some words; None where it is left out. Raises BadQuestion."""
    text = given.get(name)
    if text is not None and text not in allowed:
        raise BadQuestion(f"{name} is one of {', '.join(allowed)}, not {quoted(text)}")
    return text


def instant(given: Mapping[str, str], name: str) -> int:
    """An instant in microseconds. Raises BadQuestion."""
    text = given[name]
    try:
        return parse_instant(name, text)
    except ScheduleError as error:
        raise BadQuestion(f"{name} is {error.allowed}, not {quoted(text)}") from None


def numbers(given: Mapping[str, str], name: str) -> tuple[int, ...] | None:
    """A list of whole numbers; None where it is left out. Raises BadQuestion."""
    text = given.get(name)
    if text is None:
        return None
    return tuple(number({name: one}, name, None, 0, LARGEST_ID) for one in text.split(","))
