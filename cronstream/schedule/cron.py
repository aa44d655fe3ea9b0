"""From a parsed pattern to the masks a search needs: hashes resolved, days combined.

`H` spreads a fleet: each job gets its own value, always the same, from the SHA-256 of its tenant
and name. The digest's 32 bytes are eight words: words 0 to 5 serve the six fields, word 6 the
spread of `spread_seconds`. SQL can compute the same (`sha256(convert_to(…))`).
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from cronstream.schedule.errors import ScheduleError
from cronstream.schedule.fields import DAY, FIELDS, WEEKDAY, Field
from cronstream.schedule.grammar import Pattern
from cronstream.schedule.months import ALL_WEEKDAYS, DaySpec, can_match, day_masks

SPREAD_WORD = 6


def hash_key(tenant: str, name: str) -> str:
    """What identifies a job for its hashes; no text in PostgreSQL holds the zero byte."""
    return f"{tenant}\0{name}"


def hash_word(key: str, word: int) -> int:
    """One of the eight 32-bit words of the key's digest."""
    digest = sha256(key.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[4 * word : 4 * word + 4], "big")


class Masks(NamedTuple):
    """An expression as the search sees it."""

    seconds: int
    minutes: int
    """bits 0 to 1439: the minutes of a day"""
    months: int
    """bits 1 to 12"""
    days: array[int]
    """matching days by kind of month, shared"""
    wildcard: bool
    """the minute or the hour field begins with "*": the job follows elapsed time"""


@lru_cache(maxsize=4096)
def _minutes_of_day(minutes: int, hours: int) -> int:
    mask = 0
    for hour in range(24):
        if hours >> hour & 1:
            mask |= minutes << (60 * hour)
    return mask


def _resolve(index: int, field: Field, key: str) -> int:
    """The field's values as one mask, each H replaced by what the key's word picks."""
    mask = field.mask
    if field.hashes:
        if not key:
            raise ScheduleError(
                FIELDS[index].name,
                "H",
                FIELDS[index].allowed,
                '"H" is picked by the tenant and name of a job; here is neither',
            )
        word = hash_word(key, index)
        for low, high, step in field.hashes:
            if not step:
                mask |= 1 << (low + word % (high - low + 1))
                continue
            window = min(step, high - low + 1)
            if FIELDS[index] is DAY and high == DAY.high:
                window = min(window, DAY.hash_high)
            for value in range(low + word % window, high + 1, step):
                mask |= 1 << value
    return mask


def _day_spec(day: Field, weekday: Field, days: int, weekdays: int) -> DaySpec:
    nearest = last = nth = 0
    for item in day.special:
        if item[-1] == "W" and item != "LW":
            nearest |= 1 << int(item[:-1])
    for item in weekday.special:
        name, mark, number = item.partition("#") if "#" in item else (item[:-1], "", "")
        value = WEEKDAY.names[name] if name in WEEKDAY.names else int(name) % 7
        if mark:
            nth |= 1 << (7 * (int(number) - 1) + value)
        else:
            last |= 1 << value
    return DaySpec(
        days,
        weekdays,
        "L" in day.special,
        "LW" in day.special,
        nearest,
        last,
        nth,
        either=not day.star and not weekday.star,
    )


def resolve(pattern: Pattern, text: str, key: str) -> Masks:
    """The masks of a pattern for a job; ScheduleError when no date ever matches."""
    _, minute, hour, day, _, weekday = pattern.fields
    values = [_resolve(i, field, key) for i, field in enumerate(pattern.fields)]
    if day.special or weekday.special or values[3] != DAY.everything or values[5] != ALL_WEEKDAYS:
        spec = _day_spec(day, weekday, values[3], values[5])
    else:
        spec = _EVERY_DAY
    days = day_masks(spec)
    if not can_match(days, values[4]):
        raise ScheduleError(
            "cron",
            text,
            "an expression that some date matches",
            "its day of month, month and day of week never meet",
            problem="never fires: no date matches it",
        )
    return Masks(values[0], _minutes_of_day(values[1], values[2]), values[4], days, minute.star or hour.star)


_EVERY_DAY = DaySpec(DAY.everything, ALL_WEEKDAYS)
