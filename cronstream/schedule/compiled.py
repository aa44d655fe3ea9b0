"""The compiled form: one small object per distinct schedule, shared by all jobs that have it.

A search takes three looks and no loop in the common case:

    UTC second ──bisect──► offset ──► wall minute ──► month's day mask ──► minute-of-day mask
                                                        first bit set at or after now

and the answer stands when it lies in the same stretch of constant offset, a day clear of its
ends. Near a change of offset, and across one, `_across` goes stretch by stretch with the rules
for skipped and repeated times.

A wall time is *skipped* when the clock jumps over it and *repeated* when the clock shows it
twice. What a schedule fires for them, as a set of instants:

    dst_gap      shift  a skipped time fires at the first instant after the gap
                 skip   it does not fire
                 auto   shift for a fixed-time job, skip for a wildcard job
    dst_overlap  first  a repeated time fires in the first pass alone
                 second in the second pass alone
                 both   in both
                 auto   first for a fixed-time job, both for a wildcard job

(Debian cron's rule. A wildcard job is one whose minute or hour field begins with "*".) It is a
set: several skipped times that fall on one instant, or on a real match, are one fire.

Searches end: a date that matches at all does so within 40 years (29 February on a given
weekday, over a century), so a search that passes `SEARCH_YEARS` without a match, for instance
because every match lies in a gap and is skipped, answers None, as does one that reaches the
end of the year 9998. Before the year 2 nothing fires.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from functools import lru_cache
from weakref import WeakValueDictionary

from cronstream.schedule.cron import resolve
from cronstream.schedule.errors import ScheduleError
from cronstream.schedule.grammar import parse, text_of
from cronstream.schedule.months import (
    KNOWN_DAYS,
    KNOWN_MONTHS,
    MONTH_AT,
    month_number,
    month_of_day,
)
from cronstream.schedule.tzif import DAY, days_before_year
from cronstream.schedule.zones import LAST_YEAR, Zone, zone_of

SECOND_US = 1_000_000
DST_GAP = ("auto", "shift", "skip")
DST_OVERLAP = ("auto", "first", "second", "both")

SEARCH_YEARS = 50
_SEARCH_MONTHS = 12 * SEARCH_YEARS
_SEARCH_SECONDS = SEARCH_YEARS * 366 * DAY
_FIRST_SECOND = days_before_year(2) * DAY
_LAST_SECOND = days_before_year(LAST_YEAR) * DAY
_NO_MINUTE = 2**61
_ANY_SHIFT = DAY
"""no zone ever shifted its clock by more than a day"""


class CompiledCron:
    """A cron expression in a zone, ready to be asked. Made by `compile_cron` alone."""

    __slots__ = (
        "__weakref__",
        "days",
        "first_minute",
        "minutes",
        "months",
        "overlap",
        "seconds",
        "shift",
        "zone",
    )

    def __init__(
        self,
        zone: Zone,
        seconds: int,
        minutes: int,
        months: int,
        days: array[int],
        shift: bool,
        overlap: str,
    ) -> None:
        self.zone = zone
        self.seconds = seconds
        self.minutes = minutes
        self.first_minute = (minutes & -minutes).bit_length() - 1
        self.months = months
        self.days = days
        self.shift = shift
        self.overlap = overlap

    def next_after(self, t_us: int) -> int | None:
        """The first instant strictly after `t_us`, or None when the search ends without one."""
        now = t_us // SECOND_US
        starts, offsets = self.zone.table
        i = bisect_right(starts, now) - 1
        if starts[i] + _ANY_SHIFT < now < starts[-1]:
            offset = offsets[i]
            second = self._first_wall(now + 1 + offset) - offset
            if second < starts[i + 1] - _ANY_SHIFT and second < _LAST_SECOND:
                return second * SECOND_US
        return self._across(now)

    def _first_wall(self, wall: int) -> int:
        """The first matching wall second at or after `wall`; hugely late when there is none."""
        seconds = self.seconds
        if seconds == 1:
            return self._first_wall_minute(-(-wall // 60)) * 60
        minute, second = divmod(wall, 60)
        rest = seconds >> second
        if rest and self._first_wall_minute(minute) == minute:
            return wall + (rest & -rest).bit_length() - 1
        return self._first_wall_minute(minute + 1) * 60 + (seconds & -seconds).bit_length() - 1

    def _first_wall_minute(self, minute: int) -> int:
        day, of_day = divmod(minute, 1440)
        first, kind, bit, month = MONTH_AT[day] if 0 <= day < KNOWN_DAYS else month_of_day(day)
        if self.months & bit:
            days = self.days[kind] >> (day - first)
            if days & 1:
                rest = self.minutes >> of_day
                if rest:
                    return minute + (rest & -rest).bit_length() - 1
                days -= 1
            if days:
                return (day + (days & -days).bit_length() - 1) * 1440 + self.first_minute
        for number in range(month + 1, month + _SEARCH_MONTHS):
            first, kind, bit, _ = KNOWN_MONTHS[number] if 0 <= number < len(KNOWN_MONTHS) else month_number(number)
            if self.months & bit:
                days = self.days[kind]
                if days:
                    return (first + (days & -days).bit_length() - 1) * 1440 + self.first_minute
        return _NO_MINUTE

    def _across(self, now: int) -> int | None:
        """`next_after` in full: stretch by stretch, from the one that holds the second `now`."""
        now = max(now, _FIRST_SECOND)
        limit = min(now + _SEARCH_SECONDS, _LAST_SECOND)
        starts, offsets = self.zone.reach(now)
        i = bisect_right(starts, now) - 1
        begin = now + 1
        searched_from = wall = -(2**62)
        while begin < limit:
            if i + 1 >= len(offsets):
                starts, offsets = self.zone.reach(starts[-1])
            offset = offsets[i]
            low, high = begin + offset, starts[i + 1] + offset
            if i and self.overlap == "first":
                low = max(low, starts[i] + offsets[i - 1])
            if i + 1 < len(offsets) and self.overlap == "second":
                high = min(high, starts[i + 1] + offsets[i + 1])
            if not searched_from <= low <= wall:
                searched_from, wall = low, self._first_wall(low)
            if wall < high:
                return (wall - offset) * SECOND_US if wall - offset < limit else None
            i += 1
            if i >= len(offsets):
                return None
            begin = starts[i]
            if self.shift and wall < begin + offsets[i]:  # the first match lies in the gap
                return begin * SECOND_US if begin < limit else None
            # Stretches that end long before the first match hold none: over them in one step.
            if (ahead := min(bisect_right(starts, wall - 2 * _ANY_SHIFT), len(offsets)) - 1) > i:
                i, begin = ahead, starts[ahead]
        return None

    def means_the_same(self, other: CompiledCron) -> bool:
        """Do both fire at the same instants for the same reasons?"""
        return all(getattr(self, slot) == getattr(other, slot) for slot in self.__slots__[1:])

    def moved(self, t_us: int) -> bool:
        """Was the fire at `t_us` moved there by a gap: is its wall time none of the expression's own?"""
        wall = t_us // SECOND_US + self.zone.offset_at(t_us // SECOND_US)
        return self._first_wall(wall) != wall

    def skipped_wall(self, at: int, before: int, after: int) -> int | None:
        """The first matching wall second that a change of offset skips."""
        wall = self._first_wall(at + before)
        return wall if wall < at + after else None

    def every_hour(self) -> bool:
        """Does every hour of the day hold a match?"""
        return all(self.minutes >> (60 * hour) & ((1 << 60) - 1) for hour in range(24))

    def count(self, first_us: int, last_us: int) -> int:
        """How many instants lie in [first_us, last_us]; the cost is that of its months."""
        first = max(-(-first_us // SECOND_US), _FIRST_SECOND)
        end = min(last_us // SECOND_US + 1, _LAST_SECOND)
        starts, offsets = self.zone.reach(end + _ANY_SHIFT)
        total = 0
        i = bisect_right(starts, first) - 1
        while i < len(offsets) and starts[i] < end:
            offset, start = offsets[i], starts[i]
            low = max(first, start) + offset
            high = min(end, starts[i + 1]) + offset
            if i and self.overlap == "first":
                low = max(low, start + offsets[i - 1])
            if i + 1 < len(offsets) and self.overlap == "second":
                high = min(high, starts[i + 1] + offsets[i + 1])
            if low < high:
                total += self._count_walls(low, high)
            if (
                i
                and self.shift
                and first <= start
                and self.skipped_wall(start, offsets[i - 1], offset) is not None
                and self._first_wall(start + offset) != start + offset
            ):
                total += 1
            i += 1
        return total

    def _count_walls(self, low: int, high: int) -> int:
        """Matching wall seconds in [low, high): whole minutes, corrected at both ends."""
        (first, cut), (last, kept) = divmod(low, 60), divmod(high, 60)
        total = self._count_minutes(first, last) * self.seconds.bit_count()
        if cut and self._first_wall_minute(first) == first:
            total -= (self.seconds & ((1 << cut) - 1)).bit_count()
        if kept and self._first_wall_minute(last) == last:
            total += (self.seconds & ((1 << kept) - 1)).bit_count()
        return total

    def _count_minutes(self, low: int, high: int) -> int:
        (first, cut), (last, kept) = divmod(low, 1440), divmod(high, 1440)
        total = self._count_days(first, last) * self.minutes.bit_count()
        if cut and self._count_days(first, first + 1):
            total -= (self.minutes & ((1 << cut) - 1)).bit_count()
        if kept and self._count_days(last, last + 1):
            total += (self.minutes & ((1 << kept) - 1)).bit_count()
        return total

    def _count_days(self, low: int, high: int) -> int:
        total = 0
        while low < high:
            first, kind, bit, _ = month_of_day(low)
            length = 28 + kind // 7
            if self.months & bit:
                days = self.days[kind] >> (low - first)
                if high < first + length:
                    days &= (1 << (high - low)) - 1
                total += days.bit_count()
            low = first + length
        return total


_interned: WeakValueDictionary[int, CompiledCron] = WeakValueDictionary()
"""by the hash of what makes a form what it is: an integer key costs a third of the tuple"""


def choice(field: str, value: object, allowed: tuple[str, ...]) -> str:
    """The value itself when it is one of the allowed words."""
    if isinstance(value, str) and value in allowed:
        return value
    raise ScheduleError(field, value, ", ".join(allowed))


def _compile(expr: str, zone: str, gap: str, overlap: str, hash_key: str) -> CompiledCron:
    the_zone = zone_of(zone)
    seconds, minutes, months, days, wildcard = resolve(parse(expr), expr, hash_key)
    if overlap == "auto":
        overlap = "both" if wildcard else "first"
    shift = gap == "shift" or (gap == "auto" and not wildcard)
    made = CompiledCron(the_zone, seconds, minutes, months, days, shift, overlap)
    key = hash((zone, seconds, minutes, months, days.tobytes(), shift, overlap))
    known = _interned.setdefault(key, made)
    return known if known is made or known.means_the_same(made) else made


_compile_text = lru_cache(maxsize=16_384)(_compile)
"""Millions of jobs name some thousands of expressions: a job's compiled form is mostly one look-up."""


def compile_cron(
    expr: object,
    zone: object,
    *,
    dst_gap: object = "auto",
    dst_overlap: object = "auto",
    hash_key: str = "",
) -> CompiledCron:
    """The compiled form; expressions that mean the same in a zone give the same object.

    Raises ScheduleError for text outside the language, an unknown zone, an expression that no
    date ever matches, or an H without a `hash_key` (`cron.hash_key(tenant, name)`).
    """
    gap = choice("dst_gap", dst_gap, DST_GAP)
    overlap = choice("dst_overlap", dst_overlap, DST_OVERLAP)
    name, text = zone_of(zone).name, text_of(expr)
    if hash_key and ("H" in text or "h" in text):  # perhaps an H: its value is the job's own
        return _compile(text, name, gap, overlap, hash_key)
    return _compile_text(text, name, gap, overlap, "")
