"""The language of cron expressions: text in, fields out, or an error that says where and why.

    cron    = blanks ( macro | fields ) blanks
    macro   = "@" ( "yearly" | "annually" | "monthly" | "weekly" | "daily" | "midnight" | "hourly" )
    fields  = [ second blank ] minute blank hour blank day-of-month blank month blank day-of-week
    second, minute, hour, month  = item { "," item }
    day-of-month                 = "?" | dom-item { "," dom-item }
    day-of-week                  = "?" | dow-item { "," dow-item }
    item      = "*" [ step ] | value [ "-" value ] [ step ] | hash
    hash      = "H" [ "(" number "-" number ")" ] [ step ]
    step      = "/" number
    dom-item  = item | "L" | "LW" | number "W"
    dow-item  = item | value "L" | value "#" number
    value     = number | name                    names: JAN … DEC in month, SUN … SAT in day-of-week
    number    = digit [ digit ]
    blank     = one or more of space and tab;  blanks = any number of them

Letters in any case, ASCII alone, at most 1000 characters. What the grammar cannot say:

- second and minute 0-59, hour 0-23, day-of-month 1-31, month 1-12, day-of-week 0-7 (0 and 7 are
  Sunday), the number after "#" 1-5; in "H(a-b)" day-of-week ends at 6.
- a step is at least 1 and at most the number of values of the whole field: 60, 24, 31, 12, 7.
- "a-b" has a <= b; in day-of-week it may wrap around (FRI-MON, 6-1). "H(a-b)" never wraps.
- "a/n" runs from a to the field's maximum; in day-of-week to 6, and there a = 7 means 0.
- "H" needs the tenant and name of a job.

Each item is one regular expression per field and three comparisons: a second implementation
needs no parser either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from cronstream.schedule.errors import ScheduleError, quoted

MAX_CHARS = 1000
MACROS = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}
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


@dataclass(slots=True)
class Pattern:
    """A parsed expression; `notices` are sentences about legal but surprising parts."""

    fields: tuple[Field, ...]
    """always six: second (0 when the text had five fields) to day of week"""
    notices: tuple[str, ...] = ()

    @property
    def uses_hash(self) -> bool:
        return any(parsed.hashes for parsed in self.fields)


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


def _add_item(rules: FieldRules, item: str, parsed: Field, notices: list[str]) -> None:
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
            notices.append(f"{rules.name}: {quoted(item)} matches {rules.low} alone, like {quoted(str(rules.low))}")
        values = range(rules.low, rules.high + 1, step or 1)
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


def _parse_field(rules: FieldRules, text: str, notices: list[str]) -> Field:
    if text == "*" or (text == "?" and rules in (DAY, WEEKDAY)):
        return Field(rules.everything, star=True)
    parsed = Field(star=text[0] == "*")
    for item in text.split(","):
        if not item:
            hint = "a list has a value on both sides of each comma"
            raise ScheduleError(rules.name, text, rules.allowed, hint)
        _add_item(rules, item, parsed, notices)
    return parsed


_FIVE_OR_SIX = (
    "5 fields (minute hour day-of-month month day-of-week), 6 with seconds first, "
    "or @yearly, @monthly, @weekly, @daily, @hourly"
)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Pattern:
    if len(text) > MAX_CHARS:
        raise ScheduleError("cron", text, f"at most {MAX_CHARS} characters")
    for char in text:
        if not (" " <= char <= "~" or char == "\t"):
            raise ScheduleError("cron", char, "ASCII letters, digits and signs, spaces and tabs")
    bare = text.strip(" \t")
    if bare.startswith("@"):
        if bare.upper() not in MACROS:
            hint = "an interval goes into every, in place of cron" if "every" in bare else ""
            raise ScheduleError("cron", bare, ", ".join(MACROS).lower(), hint)
        bare = MACROS[bare.upper()]
    texts = [part for part in bare.replace("\t", " ").split(" ") if part]
    if len(texts) not in (5, 6):
        hint = f"this has {len(texts)} field{'' if len(texts) == 1 else 's'}"
        if len(texts) == 7:
            hint += "; there is no year field"
        raise ScheduleError("cron", text, _FIVE_OR_SIX, hint)
    notices: list[str] = []
    rules = FIELDS[6 - len(texts) :]
    parsed = [_parse_field(rule, part, notices) for rule, part in zip(rules, texts, strict=True)]
    if len(parsed) == 5:
        parsed.insert(0, Field(mask=1))
    day, weekday = parsed[3], parsed[5]
    if not day.star and not weekday.star:
        notices.append(
            f"day of month {quoted(texts[-3])} and day of week {quoted(texts[-1])} are both "
            "restricted: the job fires on days that match either"
        )
    return Pattern(tuple(parsed), tuple(notices))


def parse(text: object) -> Pattern:
    """The pattern of an expression; ScheduleError when the text is outside the language."""
    if not isinstance(text, str):
        raise ScheduleError("cron", text, f"a string with {_FIVE_OR_SIX}")
    return _parse(text)
