"""How results are printed: aligned columns for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import IO, Any, TypeVar
from unicodedata import category

import click

Function = TypeVar("Function", bound=Callable[..., Any])
NOTHING = "-"


def json_option(function: Function) -> Function:
    """``--json``, which every command has."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")(function)


def say(line: str = "", *, err: bool = False, file: IO[Any] | None = None) -> None:
    """Print a line, or several. All that the command prints goes through here, for most of it comes from data."""
    print(printable(line), file=file or (sys.stderr if err else sys.stdout))


def print_json(value: object) -> None:
    """Instants as ISO 8601 in UTC, spans as ISO 8601 durations."""
    say(json.dumps(value, indent=2 if sys.stdout.isatty() else None, default=_plain, ensure_ascii=False))


def print_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as their widest cell; never wrapped, so that lines can be cut and searched."""
    lines = [list(header), *([text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def print_fields(fields: Mapping[str, object]) -> None:
    """One ``name  value`` a line."""
    width = max(map(len, fields))
    for name, value in fields.items():
        say(f"{name.ljust(width)}  {text(value)}")


def text(value: object) -> str:
    """A value as people read it, on one line."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, timedelta):
        return span(value)
    if isinstance(value, dict | list):
        return printable(json.dumps(value, ensure_ascii=False))
    return printable(" ".join(str(value).splitlines()))


def printable(value: str) -> str:
    """A text of one line or several; what would steer a terminal, or reorder a line, is escaped as in JSON."""
    if value.replace("\n", "").isprintable():
        return value
    return "".join(_escaped(one) if _steers(one) else one for one in value.replace("\r\n", "\n"))


def _steers(one: str) -> bool:
    """Controls of C0 and C1, what goes unseen and changes its neighbours (bidi, joiners, tags), half characters."""
    return one not in "\n\t" and category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def _escaped(one: str) -> str:
    return "\\u" + one.encode("utf-16-be", "surrogatepass").hex(":", 2).replace(":", "\\u")


def count(number: int, noun: str) -> str:
    """``1 job``, ``12,000 jobs``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def instant(value: datetime) -> str:
    """``2026-03-08T07:00:00Z``, with a fraction only where there is one."""
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def span(value: timedelta) -> str:
    """``1h30m``, ``45s``, ``0.25s``."""
    return _span(value, ("d", "h", "m", "s")) or "0s"


def iso_span(value: timedelta) -> str:
    """``PT1H30M``; before zero with a sign in front."""
    if value < timedelta(0):
        return "-" + iso_span(-value)
    parts = _span(value - timedelta(days=value.days), ("", "H", "M", "S"))
    days = f"{value.days}D" if value.days else ""
    return f"P{days}T{parts}" if parts else f"P{days}" if days else "PT0S"


def _span(value: timedelta, units: tuple[str, str, str, str]) -> str:
    if value < timedelta(0):
        return "-" + _span(-value, units)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    fraction = f"{value.microseconds / 1e6:.6f}".rstrip("0")[1:].rstrip(".")
    whole = [(value.days, units[0]), (hours, units[1]), (minutes, units[2])]
    shown = "".join(f"{number}{unit}" for number, unit in whole if number)
    return shown + (f"{seconds}{fraction}{units[3]}" if seconds or fraction else "")


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, timedelta):
        return iso_span(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
