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
from dataclasses import dataclass
from functools import lru_cache

from cronstream.schedule.errors import ScheduleError, quoted
from cronstream.schedule.fields import Field, parse_field

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
_SECOND_ZERO = Field(mask=1)
_LEGAL = re.compile(r"[ -~\t]*")


@dataclass(slots=True)
class Pattern:
    """A parsed expression; `notices` are sentences about legal but surprising parts."""

    fields: tuple[Field, ...]
    """always six: second (0 when the text had five fields) to day of week"""
    notices: tuple[str, ...] = ()


_FIVE_OR_SIX = (
    "5 fields (minute hour day-of-month month day-of-week), 6 with seconds first, "
    "or @yearly, @monthly, @weekly, @daily, @hourly"
)


@lru_cache(maxsize=1024)
def _parse(text: str) -> Pattern:
    if len(text) > MAX_CHARS:
        raise ScheduleError("cron", text, f"at most {MAX_CHARS} characters")
    legal = _LEGAL.match(text)
    if legal is not None and legal.end() < len(text):
        raise ScheduleError("cron", text[legal.end()], "ASCII letters, digits and signs, spaces and tabs")
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
    first = 6 - len(texts)
    parsed = [_SECOND_ZERO] * first + [parse_field(first + i, part) for i, part in enumerate(texts)]
    notices = [notice for one in parsed for notice in one.notices]
    day, weekday = parsed[3], parsed[5]
    if not day.star and not weekday.star:
        notices.append(
            f"day of month {quoted(texts[-3])} and day of week {quoted(texts[-1])} are both "
            "restricted: the job fires on days that match either"
        )
    return Pattern(tuple(parsed), tuple(notices))


def text_of(expr: object) -> str:
    """The expression itself when it is a string."""
    if not isinstance(expr, str):
        raise ScheduleError("cron", expr, f"a string with {_FIVE_OR_SIX}")
    return expr


def parse(expr: object) -> Pattern:
    """The pattern of an expression; ScheduleError when the text is outside the language."""
    return _parse(text_of(expr))
