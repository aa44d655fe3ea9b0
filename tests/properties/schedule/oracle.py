"""A brute-force oracle: it walks the instants of a night one by one and asks zoneinfo each time.

It shares nothing with the engine: no masks, no compiled form, no table of offsets; fields are
sets, days are asked of `calendar`, zone data comes through zoneinfo (held to PyPI's tzdata).
Slow on purpose: whatever it says follows from looking at every wall time there was.
"""

from __future__ import annotations

import calendar
import zoneinfo
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache

zoneinfo.reset_tzpath(to=[])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LIMITS = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]
MONTHS = {name.upper(): i for i, name in enumerate(calendar.month_abbr) if name}
DAYS = {"SUN": 0, "MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6}


def _number(text: str) -> int:
    return MONTHS.get(text, DAYS.get(text, -1)) if text.isalpha() else int(text)


def _plain(item: str, index: int) -> set[int]:
    low, high = LIMITS[index]
    body, _, step = item.partition("/")
    if body == "*":
        chain = list(range(low, high + 1))
    elif "-" in body:
        a, b = (_number(part) for part in body.split("-"))
        chain = [0 if a == 7 > b else a]  # 7 is Sunday, so 7-0 is Sunday alone while 0-7 is the week
        while chain[-1] != b:
            chain.append((chain[-1] + 1) % 7 if index == 5 and (a > b or chain[-1] == 7) else chain[-1] + 1)
            assert len(chain) < 100
    elif step:
        chain = list(range(_number(body) % 7 if index == 5 else _number(body), high + 1))
    else:
        chain = [_number(body)]
    picked = chain[:: int(step or 1)]
    return {value % 7 for value in picked} if index == 5 else set(picked)


@dataclass
class Expression:
    """Fields as sets of values and lists of special items."""

    values: list[set[int]]
    special: list[list[str]]
    starred: list[bool]

    def day_matches(self, day: date) -> bool:
        if day.month not in self.values[4]:
            return False
        by_day = day.day in self.values[3] or any(self._special_day(item, day) for item in self.special[3])
        weekday = day.isoweekday() % 7
        by_weekday = weekday in self.values[5] or any(self._special_weekday(item, day) for item in self.special[5])
        if self.starred[3] or self.starred[5]:
            return by_day and by_weekday
        return by_day or by_weekday

    def _special_day(self, item: str, day: date) -> bool:
        length = calendar.monthrange(day.year, day.month)[1]
        if item == "L":
            return day.day == length
        workdays = [d for d in range(1, length + 1) if day.replace(day=d).isoweekday() <= 5]
        if item == "LW":
            return day.day == workdays[-1]
        wanted = int(item[:-1])
        return wanted <= length and day.day == min(workdays, key=lambda d: abs(d - wanted))

    def _special_weekday(self, item: str, day: date) -> bool:
        if "#" in item:
            weekday, _, nth = item.partition("#")
            return _number(weekday) % 7 == day.isoweekday() % 7 and (day.day + 6) // 7 == int(nth)
        last = day.day + 7 > calendar.monthrange(day.year, day.month)[1]
        return last and _number(item[:-1]) % 7 == day.isoweekday() % 7

    @property
    def wildcard(self) -> bool:
        return self.starred[1] or self.starred[2]


def read_expression(text: str) -> Expression:
    """For valid expressions without macros and H."""
    parts = text.upper().split()
    if len(parts) == 5:
        parts.insert(0, "0")
    values: list[set[int]] = []
    special: list[list[str]] = []
    for index, part in enumerate(parts):
        odd = [
            item
            for item in part.split(",")
            if (index == 3 and item[-1] in "LW") or (index == 5 and ("#" in item or item[-1] == "L"))
        ]
        plain = [item for item in part.replace("?", "*").split(",") if item not in odd]
        values.append(set().union(*(_plain(item, index) for item in plain)))
        special.append(odd)
    return Expression(values, special, [part[0] in "*?" for part in parts])


@cache
def walk(zone: str, first: int, last: int, step: int) -> list[tuple[int, datetime]]:
    """(UTC second, wall time) of every step in [first, last]."""
    tz = zoneinfo.ZoneInfo(zone)
    return [
        (t, (EPOCH + timedelta(seconds=t)).astimezone(tz).replace(tzinfo=None)) for t in range(first, last + 1, step)
    ]


def fires(
    text: str, zone: str, first: int, last: int, *, step: int, margin: int, gap: str = "auto", overlap: str = "auto"
) -> list[int]:
    """All fires in [first, last] (UTC seconds, multiples of step), seen from `margin` seconds around."""
    expression = read_expression(text)
    if gap == "auto":
        gap = "skip" if expression.wildcard else "shift"
    if overlap == "auto":
        overlap = "both" if expression.wildcard else "first"
    days: dict[date, bool] = {}
    seconds, minutes, hours = expression.values[:3]

    def matches(wall: datetime) -> bool:
        if wall.minute not in minutes or wall.hour not in hours or wall.second not in seconds:
            return False
        day = wall.date()
        if day not in days:
            days[day] = expression.day_matches(day)
        return days[day]

    steps = walk(zone, first - margin, last + margin, step)
    passes: dict[datetime, list[int]] = defaultdict(list)
    found: set[int] = set()
    before: datetime | None = None
    tick = timedelta(seconds=step)
    highest = datetime.min
    for t, wall in steps:
        if matches(wall):
            passes[wall].append(t)
        if gap == "shift" and before is not None:
            missing = max(before, highest) + tick
            while missing < wall:
                if matches(missing):
                    found.add(t)
                missing += tick
        before = wall
        highest = max(highest, wall)
    for instants in passes.values():
        if overlap == "first":
            instants = instants[:1]
        elif overlap == "second":
            instants = instants[-1:]
        found.update(instants)
    return sorted(t for t in found if first <= t <= last)


@cache
def transitions(zone: str, first_year: int, last_year: int) -> list[int]:
    """The UTC seconds at which zoneinfo's offset changes, found by looking at every day."""
    tz = zoneinfo.ZoneInfo(zone)

    def offset(t: int) -> timedelta:
        found = (EPOCH + timedelta(seconds=t)).astimezone(tz).utcoffset()
        assert found is not None
        return found

    begin = calendar.timegm((first_year, 1, 1, 0, 0, 0))
    end = calendar.timegm((last_year + 1, 1, 1, 0, 0, 0))
    result = []
    step = 3 * 86_400
    before = offset(begin)
    for t in range(begin + step, end, step):
        after = offset(t)
        if after != before:
            low, high = t - step, t
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle) == before else (low, middle)
            result.append(high)
        before = after
    return result
