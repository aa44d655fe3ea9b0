"""The calendar as bit masks: which days of a month match, for every month there can be.

A month is, for a schedule, one of 28 kinds: four lengths (28 to 31) by seven weekdays of its
first day. So a day specification is 28 masks (bit 0 = the 1st), made once per distinct
specification and shared by all expressions that have it. All special days (last day, nearest
weekday, nth weekday) are gone after that: the search sees only masks.

Days are counted from 1970-01-01, months from January 1970; weekday 0 is Sunday.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from cronstream.schedule.tzif import days_before_year, is_leap

LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
ALL_DAYS = (1 << 31) - 1
ALL_WEEKDAYS = (1 << 7) - 1

Month = tuple[int, int, int, int]
"""(day number of the 1st, kind, month as a bit: 1 << 1 for January, number since January 1970)"""


def kind_of(length: int, first_weekday: int) -> int:
    return (length - 28) * 7 + first_weekday


@lru_cache(maxsize=4096)
def month_number(number: int) -> Month:
    """The month `number` months after January 1970."""
    year, month = divmod(number, 12)
    year += 1970
    first = days_before_year(year) + sum(LENGTHS[:month]) + (month > 1 and is_leap(year))
    length = LENGTHS[month] + (month == 1 and is_leap(year))
    return first, kind_of(length, (first + 4) % 7), 2 << month, number


def month_of_day(day: int) -> Month:
    """The month in which a day lies, at any distance from 1970."""
    number = day * 4800 // 146_097  # 4800 months in 146,097 days: off by one at the most
    if day < month_number(number)[0]:
        return month_number(number - 1)
    if day >= month_number(number + 1)[0]:
        return month_number(number + 1)
    return month_number(number)


KNOWN_MONTHS = [month_number(number) for number in range(130 * 12)]
"""January 1970 to December 2099, to be indexed without a call."""

MONTH_AT = [known for known, after in pairwise(KNOWN_MONTHS) for _ in range(after[0] - known[0])]
"""The month of each day from 1970-01-01 on: one list index on the hot path."""

KNOWN_DAYS = len(MONTH_AT)


class DaySpec(NamedTuple):
    """The two day fields, resolved. Masks: bit n = day n, bit w = weekday w."""

    days: int
    """plain days of the month, bits 1 to 31"""
    weekdays: int
    """plain weekdays, bits 0 to 6"""
    last_day: bool = False
    last_workday: bool = False
    nearest_workdays: int = 0
    """`nW`, bits 1 to 31"""
    last_weekdays: int = 0
    """`dowL`, bits 0 to 6"""
    nth_weekdays: int = 0
    """`dow#n`, bit 7 * (n - 1) + weekday"""
    either: bool = False
    """both fields restricted: one match is enough"""


def _days_mask(spec: DaySpec, length: int, first_weekday: int) -> int:
    """Matches of the day-of-month field, bit 0 = the 1st."""
    mask = spec.days >> 1
    last_weekday = (first_weekday + length - 1) % 7
    if spec.last_day:
        mask |= 1 << (length - 1)
    if spec.last_workday:
        mask |= 1 << (length - 1 - {6: 1, 0: 2}.get(last_weekday, 0))
    for day in range(1, length + 1):
        if spec.nearest_workdays >> day & 1:
            weekday = (first_weekday + day - 1) % 7
            if weekday == 6:  # Saturday: Friday, but never out of the month
                day += -1 if day > 1 else 2
            elif weekday == 0:
                day += 1 if day < length else -2
            mask |= 1 << (day - 1)
    return mask & ((1 << length) - 1)


def _weekdays_mask(spec: DaySpec, length: int, first_weekday: int) -> int:
    """Matches of the weekday field, bit 0 = the 1st."""
    mask = 0
    for day in range(length):
        weekday = (first_weekday + day) % 7
        if (
            spec.weekdays >> weekday & 1
            or spec.nth_weekdays >> (day // 7 * 7 + weekday) & 1
            or (day + 7 >= length and spec.last_weekdays >> weekday & 1)
        ):
            mask |= 1 << day
    return mask


@lru_cache(maxsize=4096)
def _weekday_masks(spec: DaySpec) -> tuple[int, ...]:
    return tuple(_weekdays_mask(spec, length, first) for length in _MONTH_LENGTHS for first in _WEEK)


_MONTH_LENGTHS = range(28, 32)
_WEEK = range(7)


@lru_cache(maxsize=4096)
def day_masks(spec: DaySpec) -> array[int]:
    """The matching days of each of the 28 kinds of month, indexed by kind."""
    weekdays = _weekday_masks(
        spec._replace(days=0, nearest_workdays=0, last_day=False, last_workday=False, either=False)
    )
    special = spec.last_day or spec.last_workday or spec.nearest_workdays
    masks = array("I")
    for kind in range(28):
        length, first = divmod(kind, 7)
        length += 28
        days = _days_mask(spec, length, first) if special else spec.days >> 1 & ((1 << length) - 1)
        masks.append(days | weekdays[kind] if spec.either else days & weekdays[kind])
    return array("I", masks)  # copied: an array that grew keeps room to grow


def can_match(masks: array[int], months: int) -> bool:
    """Does any month of the mask (bit 1 = January) ever hold a matching day?

    Exact: over 400 years every month begins on every weekday, February in both lengths.
    """
    for month, length in enumerate(LENGTHS):
        if months >> (month + 1) & 1:
            lengths = (28, 29) if month == 1 else (length,)
            if any(masks[kind_of(length, first)] for length in lengths for first in _WEEK):
                return True
    return False
