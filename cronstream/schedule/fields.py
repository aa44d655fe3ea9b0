"""One field of a cron expression: what it allows, and its text as values.

The rules of each field are data (`FIELDS`), so that the parser has no case per field beyond the
week's wrap-around. The language as a whole stands in `grammar`. Fields repeat from expression to
expression, so parsed ones are kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from cronstream.schedule.errors import ScheduleError, quoted

_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True)
class FieldRules:
    """One field of the language: its name in messages, its values, its special items."""

    name: str
    low: int
    high: int
    """the largest value that counts; 7 for Sunday is read as well, and folded onto 0"""
    names: dict[str, int] = field(default_factory=dict)
    special: str = "(?!)"
    allowed: str = ""
    hash_high: int = 0
    """the last value that a bare H takes: 28 in day-of-month, so that it fires every month"""

    @property
    def size(self) -> int:
        return self.high - self.low + 1

    @property
    def everything(self) -> int:
        return (2 << self.high) - (1 << self.low)


_FORMS = '"*", lists, ranges, steps'
SECOND = FieldRules("second", 0, 59, allowed=f"0-59, {_FORMS}", hash_high=59)
MINUTE = FieldRules("minute", 0, 59, allowed=f"0-59, {_FORMS}", hash_high=59)
HOUR = FieldRules("hour", 0, 23, allowed=f"0-23, {_FORMS}", hash_high=23)
DAY = FieldRules(
    "day of month",
    1,
    31,
    special="LW?|[0-9]{1,2}W",
    allowed=f'1-31, {_FORMS}, "?", "L", "LW", nearest weekday such as "15W"',
    hash_high=28,
)
MONTH = FieldRules(
    "month",
    1,
    12,
    {name: i for i, name in enumerate(_MONTHS, 1)},
    allowed=f"1-12, JAN-DEC, {_FORMS}",
    hash_high=12,
)
WEEKDAY = FieldRules(
    "day of week",
    0,
    6,
    {name: i for i, name in enumerate(_WEEKDAYS)},
    special="(?:[0-9]{1,2}|[A-Z]{3})(?:L|#[0-9]{1,2})",
    allowed=f'0-7, SUN-SAT, {_FORMS}, "?", last such as "FRIL", nth such as "MON#2"',
    hash_high=6,
)
FIELDS = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)

_ITEM = re.compile(
    r"(?:(?P<star>\*)|(?P<a>[0-9]{1,2}|[A-Z]{3})(?:-(?P<b>[0-9]{1,2}|[A-Z]{3}))?"
    r"|(?P<hash>H)(?:\((?P<from>[0-9]{1,2})-(?P<to>[0-9]{1,2})\))?)(?:/(?P<step>[0-9]+))?"
)
_UNITS = {"second": "S", "minute": "M", "hour": "H"}
_OF_ONE_SIZE = ("second", "minute", "hour", "month")
_SPECIAL = {rules.name: re.compile(rules.special) for rules in FIELDS}


@dataclass(slots=True)
class Field:
    """One parsed field: a mask of plain values, the hashes to resolve, the special items."""

    mask: int = 0
    star: bool = False
    """begins with "*" (or is "?"): such a field does not restrict"""
    hashes: tuple[tuple[int, int, int], ...] = ()
    """(low, high, step or 0) of each H"""
    special: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    """sentences about legal but surprising parts"""


def _value(rules: FieldRules, text: str, item: str) -> int:
    """A number or name in upper case; `item` is what the user wrote around it."""
    if text[0].isdigit():
        number = int(text)
        if rules.low <= number <= rules.high or (rules is WEEKDAY and number == 7):
            return number
    elif text in rules.names:
        return rules.names[text]
    raise ScheduleError(rules.name, item, rules.allowed)


def _step(rules: FieldRules, text: str, item: str) -> int:
    if len(text) <= 2 and 1 <= int(text) <= rules.size:
        return int(text)
    hint = "a step counts values of its own field"
    if rules.name in _UNITS and text.strip("0"):
        distance = f", such as 'PT{int(text)}{_UNITS[rules.name]}'" if len(text) < 6 else ""
        hint += f"; a fixed distance goes into every{distance}, in place of cron"
    raise ScheduleError(rules.name, item, f"a step from 1 to {rules.size}", hint)


def _add_item(rules: FieldRules, item: str, parsed: Field) -> None:
    upper = item.upper()
    match = _ITEM.fullmatch(upper)
    if match is None:
        if not _SPECIAL[rules.name].fullmatch(upper):
            raise ScheduleError(rules.name, item, rules.allowed, _remedy(rules, upper))
        _check_special(rules, upper, item)
        parsed.special += (upper,)
        return
    star, a, b, hashed, begin, end, step_text = match.groups()
    step = _step(rules, step_text, item) if step_text is not None else 0
    if hashed:
        low, high = rules.low, rules.high
        if begin is not None:
            low, high = int(begin), int(end)
            if not rules.low <= low <= high <= rules.high:
                bounds = f"H(a-b) with {rules.low} <= a <= b <= {rules.high}"
                raise ScheduleError(rules.name, item, bounds)
        elif not step:
            high = rules.hash_high
        parsed.hashes += ((low, high, step),)
        return
    if star:
        if step == rules.size:
            alone = f"{quoted(item)} matches {rules.low} alone, like {quoted(str(rules.low))}"
            parsed.notices += (f"{rules.name}: {alone}",)
        values = range(rules.low, rules.high + 1, step or 1)
        # Months differ in length, and no step divides a week: of days nobody expects it.
        if step and step != rules.size and rules.size % step and rules.name in _OF_ONE_SIZE:
            rest = f"a step of {rules.size % step}: {step} does not divide {rules.size}"
            parsed.notices += (f"{rules.name}: {quoted(item)} goes from {values[-1]} to {rules.low}, {rest}",)
    else:
        first = last = _value(rules, a, item)
        if b is not None:
            last = _value(rules, b, item)
            if first > last:
                if rules is not WEEKDAY:
                    hint = f'write "{a}-{rules.high},{rules.low}-{b}" for a range that wraps around'
                    raise ScheduleError(rules.name, item, "a range from low to high", hint)
                if first == 7:
                    first = 0
                else:
                    last += 7
        elif step:
            first, last = (first % 7 if rules is WEEKDAY else first), rules.high
        values = range(first, last + 1, step or 1)
    for value in values:
        parsed.mask |= 1 << (value % 7 if rules is WEEKDAY else value)


def _check_special(rules: FieldRules, upper: str, item: str) -> None:
    """Values inside `nW`, `dowL` and `dow#n`."""
    value, mark, nth = upper.partition("#")
    if upper not in ("L", "LW"):
        _value(rules, value if mark else upper[:-1], item)
    if mark and not 1 <= int(nth) <= 5:
        raise ScheduleError(rules.name, item, 'a number from 1 to 5 after "#"')


def _remedy(rules: FieldRules, item: str) -> str:
    if rules is WEEKDAY and item == "L":
        return 'the last Friday of a month is "FRIL" or "5L", Saturday is "SAT"'
    if item == "?":
        return 'only the day fields may be "?"; write "*"'
    return ""


@lru_cache(maxsize=4096)
def parse_field(index: int, text: str) -> Field:
    """The field at an index of FIELDS, shared: not to be changed by who gets it."""
    rules = FIELDS[index]
    if text == "*" or (text == "?" and rules in (DAY, WEEKDAY)):
        return Field(rules.everything, star=True)
    parsed = Field(star=text[0] == "*")
    for item in text.split(","):
        if not item:
            hint = "a list has a value on both sides of each comma"
            raise ScheduleError(rules.name, text, rules.allowed, hint)
        _add_item(rules, item, parsed)
    return parsed
