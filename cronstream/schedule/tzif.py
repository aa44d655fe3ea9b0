"""Reading one compiled time zone file (TZif, RFC 9636): pure bytes in, offsets out.

A file holds explicit transitions (for most zones up to 2037 at the latest) and, as its last
line, a POSIX rule for all later years, such as `EST5EDT,M3.2.0,M11.1.0`:

    | v1 block, 32 bit, skipped | v2 block: transitions, types | "\\n" rule "\\n" |

`read` returns the offset before everything, the changes of offset (changes of name or of the
is-summer flag alone are dropped: they move no clock), and the rule. `Rule.changes(year)` gives
the changes of any year from it. All times are seconds since the epoch, offsets seconds east.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import NamedTuple

DAY = 86_400
_HEADER = struct.Struct(">4s1s15x6l")
_RULE = re.compile(
    r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]+>)(?P<std>[+-]?[0-9:]+)"
    r"(?:(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]+>)(?P<dst>[+-]?[0-9:]+)?,(?P<start>[^,]+),(?P<end>[^,]+))?"
)


def days_before_year(year: int) -> int:
    """Days from 1970-01-01 to 1 January of `year`, in the proleptic Gregorian calendar."""
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400 - 719_162


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


@dataclass(frozen=True, slots=True)
class Rule:
    """A POSIX rule. Without summer time `start` and `end` are empty and the offset is `std`."""

    std: int
    dst: int
    start: str
    end: str

    def changes(self, year: int) -> list[tuple[int, int]]:
        """(instant, new offset) of the year, in order; empty without summer time."""
        if not self.start:
            return []
        to_summer = (_wall_instant(self.start, year) - self.std, self.dst)
        to_winter = (_wall_instant(self.end, year) - self.dst, self.std)
        return sorted((to_summer, to_winter))


def _clock(text: str) -> int:
    """`[+-]h[:mm[:ss]]` in seconds."""
    sign = -1 if text.startswith("-") else 1
    parts = [int(part) for part in text.lstrip("+-").split(":")] + [0, 0]
    return sign * (parts[0] * 3600 + parts[1] * 60 + parts[2])


def _wall_instant(rule: str, year: int) -> int:
    """The wall second, as if it were UTC, that `Mm.w.d`, `Jn` or `n` with `/time` names."""
    date, _, time = rule.partition("/")
    first = days_before_year(year)
    if date[0] == "M":
        month, week, weekday = (int(part) for part in date[1:].split("."))
        leap = is_leap(year)
        begin = first + _BEFORE_MONTH[month - 1] + (leap and month > 2)
        length = 28 + leap if month == 2 else 30 + (month in (1, 3, 5, 7, 8, 10, 12))
        day = (weekday - begin - 4) % 7 + 7 * (week - 1)
        while day >= length:
            day -= 7
        day += begin
    elif date[0] == "J":
        number = int(date[1:])
        day = first + number - 1 + (is_leap(year) and number > 59)
    else:
        day = first + int(date)
    return day * DAY + (_clock(time) if time else 7200)


def parse_rule(text: str) -> Rule | None:
    """The rule of a file's last line; None for the empty one (nothing is known of later years)."""
    if not text:
        return None
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(f"not a POSIX time zone rule: {text!r}")
    std = -_clock(match["std"])
    dst = -_clock(match["dst"]) if match["dst"] else std + 3600
    return Rule(std, dst, match["start"] or "", match["end"] or "")


class TimeZoneFile(NamedTuple):
    """What a file says: the offsets up to `last`, and the rule for all time after it."""

    before: int
    changes: list[tuple[int, int]]
    """(instant, new offset), in order"""
    last: int
    """the last explicit transition, which may be one that changes no offset"""
    rule: Rule | None


def read(data: bytes) -> TimeZoneFile:
    """The content of a TZif file of version 2 or later; ValueError for anything else."""
    magic, version, *counts = _HEADER.unpack_from(data)
    if magic != b"TZif" or version < b"2":
        raise ValueError("not a TZif file of version 2 or later")
    isut, isstd, leap, times, types, chars = counts
    at = _HEADER.size + times * 5 + types * 6 + chars + leap * 8 + isstd + isut
    _, _, isut, isstd, leap, times, types, chars = _HEADER.unpack_from(data, at)
    at += _HEADER.size
    instants = struct.unpack_from(f">{times}q", data, at)
    kinds = data[at + times * 8 : at + times * 9]
    at += times * 9
    offsets = [struct.unpack_from(">lBB", data, at + 6 * kind)[0] for kind in range(types)]
    at += types * 6 + chars + leap * 12 + isstd + isut
    before = offset = offsets[0]
    changes = []
    for instant, kind in zip(instants, kinds, strict=True):
        if offsets[kind] != offset:
            offset = offsets[kind]
            changes.append((instant, offset))
    rule = parse_rule(data[at:].strip(b"\n").decode("ascii"))
    return TimeZoneFile(before, changes, instants[-1] if instants else -(2**62), rule)
