"""Fixed distances in absolute time, and the schedule of a single instant.

`every` is counted from its anchor, never from the last fire: fire n is anchor + n · period for
n = 0, 1, 2, …, so nothing ever drifts and clock changes of a zone mean nothing. Months and years
have no fixed length; they are cron's business (`0 0 1 * *`).

    every     = iso | postgres
    iso       = "P" [n "W"] [n "D"] [ "T" [n "H"] [n "M"] [n "S"] ]        at least one part
    postgres  = [ "@" ] { n unit } [ hh ":" mm [ ":" ss ] ]                at least one part
    n         = digits [ "." digits ]
    unit      = week, day, hour, minute, second, millisecond, microsecond in PostgreSQL's spellings

Letters in any case. A day is 24 hours, a week 7 days. All integer microseconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cronstream.schedule.errors import ScheduleError
from cronstream.schedule.tzif import days_before_year
from cronstream.schedule.zones import LAST_YEAR

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
MIN_EVERY_US = SECOND_US
MAX_EVERY_US = 36_525 * DAY_US
"""a hundred years"""

LAST_US = days_before_year(LAST_YEAR) * DAY_US
"""where all searches end"""

_UNITS = {
    MINUTE_US: "m min mins minute minutes",
    HOUR_US: "h hr hrs hour hours",
    DAY_US: "d day days",
    7 * DAY_US: "w week weeks",
    SECOND_US: "s sec secs second seconds",
    1000: "ms msec msecs millisecond milliseconds",
    1: "us usec usecs microsecond microseconds",
}
_UNIT_US = {name: size for size, names in _UNITS.items() for name in names.split()}
_CALENDAR = frozenset("mon mons month months y yr yrs year years".split())  # noqa: SIM905
_N = r"([0-9]{1,18}(?:\.[0-9]{1,18})?)"
_ISO = re.compile(rf"P(?=.)(?:{_N}W)?(?:{_N}D)?(?:T(?=.)(?:{_N}H)?(?:{_N}M)?(?:{_N}S)?)?")
_ISO_US = (7 * DAY_US, DAY_US, HOUR_US, MINUTE_US, SECOND_US)
_ISO_CALENDAR = re.compile(r"P[^T]*[YM].*")
_WORDS = re.compile(rf"{_N} ?([a-z]{{1,12}}) ?")
_CLOCK = re.compile(r"([0-9]{1,9}):([0-5]?[0-9])(?::([0-5]?[0-9](?:\.[0-9]{1,18})?))?")
_MAX_CHARS = 200
_ALLOWED = (
    "an ISO 8601 duration such as 'PT90S' or 'P1DT12H', or a PostgreSQL interval such as "
    "'90 seconds', from one second to a hundred years"
)


def _times(number: str, unit_us: int, text: str) -> int:
    """number · unit in whole microseconds; a finer fraction is refused, not rounded."""
    whole, _, fraction = number.partition(".")
    finest: int = 10 ** len(fraction)
    part, rest = divmod(int(fraction or "0") * unit_us, finest)
    if rest:
        raise ScheduleError("every", text, "whole microseconds")
    return int(whole) * unit_us + part


def _calendar_error(text: str) -> ScheduleError:
    return ScheduleError(
        "every",
        text,
        "weeks, days, hours, minutes and seconds",
        "months and years have no fixed length: give a cron expression, such as '0 0 1 * *'",
    )


def _iso_us(text: str) -> int:
    match = _ISO.fullmatch(text.upper())
    if match is None:
        if _ISO_CALENDAR.fullmatch(text.upper()):
            raise _calendar_error(text)
        raise ScheduleError("every", text, _ALLOWED)
    parts = zip(match.groups(), _ISO_US, strict=True)
    return sum(_times(number, unit, text) for number, unit in parts if number)


def _postgres_us(text: str) -> int:
    rest = text.lower().removeprefix("@").lstrip(" ")
    total = parts = 0
    while match := _WORDS.match(rest):
        number, unit = match.groups()
        if unit in _CALENDAR:
            raise _calendar_error(text)
        if unit not in _UNIT_US:
            raise ScheduleError("every", text, _ALLOWED)
        total += _times(number, _UNIT_US[unit], text)
        parts += 1
        rest = rest[match.end() :]
    if clock := _CLOCK.fullmatch(rest):
        hours, minutes, seconds = clock.groups(default="0")
        total += int(hours) * HOUR_US + int(minutes) * MINUTE_US + _times(seconds, SECOND_US, text)
        return total
    if rest or not parts:
        hint = f"a bare number has no unit: write '{rest} seconds'" if rest.isdecimal() else ""
        raise ScheduleError("every", text, _ALLOWED, hint)
    return total


def parse_every(text: object) -> int:
    """Microseconds of a duration; ScheduleError of field `every` when it is none, or too short."""
    if not isinstance(text, str) or len(text) > _MAX_CHARS or not text.isascii():
        raise ScheduleError("every", text, _ALLOWED)
    bare = text.strip(" ")
    every_us = _iso_us(bare) if bare[:1] in ("P", "p") else _postgres_us(bare)
    return check_every(every_us, text)


def check_every(every_us: object, shown: object = None) -> int:
    """The period itself when it is within bounds."""
    shown = every_us if shown is None else shown
    if not isinstance(every_us, int) or isinstance(every_us, bool):
        raise ScheduleError("every", shown, _ALLOWED)
    if not MIN_EVERY_US <= every_us <= MAX_EVERY_US:
        text = shown if isinstance(shown, str) else f"{every_us} microseconds"
        raise ScheduleError("every", text, _ALLOWED)
    return every_us


@dataclass(frozen=True, slots=True)
class Every:
    """Every `period_us` from `anchor_us` on; the anchor itself is the first fire."""

    period_us: int
    anchor_us: int

    def next_after(self, t_us: int) -> int | None:
        following = max(self.anchor_us, t_us + self.period_us - (t_us - self.anchor_us) % self.period_us)
        return following if following < LAST_US else None

    def count(self, first_us: int, last_us: int) -> int:
        """How many fires lie in [first_us, last_us]."""
        before = max(0, -((self.anchor_us - first_us) // self.period_us))
        return max(0, (min(last_us, LAST_US - 1) - self.anchor_us) // self.period_us + 1 - before)


@dataclass(frozen=True, slots=True)
class Once:
    """The single instant of `run_at`."""

    run_at_us: int

    def next_after(self, t_us: int) -> int | None:
        return self.run_at_us if t_us < self.run_at_us else None

    def count(self, first_us: int, last_us: int) -> int:
        return int(first_us <= self.run_at_us <= last_us)
