"""Questions in what croniter 7 reads as the rules do, asked near clock changes and far from them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from random import Random
from typing import Any

from cronstream.schedule import compile_cron
from cronstream.schedule.fields import FIELDS
from cronstream.schedule.grammar import parse
from cronstream.schedule.zones import zone_of
from tests.properties.schedule.generate import DAY_NAMES, MONTH_NAMES

DAY = 86_400
FROM, TO = 946_684_800, 2_082_758_400  # the years 2000 to 2035
COUNT = 4
ZONES = [
    "UTC", "America/New_York", "Europe/Berlin", "Europe/London", "Asia/Kolkata", "Australia/Lord_Howe",
    "Africa/Casablanca", "Africa/Cairo", "America/Santiago", "Asia/Beirut", "Pacific/Apia",
    "America/St_Johns", "Asia/Tehran", "Pacific/Auckland", "America/Havana", "Asia/Kathmandu", "Europe/Dublin",
]  # fmt: skip


@dataclass(frozen=True)
class Question:
    """An expression in a zone at a UTC second; `theirs` is how croniter writes the expression."""

    expr: str
    theirs: str
    zone: str
    after: int

    def asked(self) -> dict[str, Any]:
        return {"expr": self.theirs, "tz": self.zone, "after": self.after, "count": COUNT}

    def ours(self) -> list[int]:
        """With croniter's ways at a clock change: named hours are moved out of a gap, all run in both passes."""
        gap = "skip" if self.expr.split()[1] == "*" else "shift"
        compiled = compile_cron(self.expr, self.zone, dst_gap=gap, dst_overlap="both")
        fires, t = [], self.after * 1_000_000
        for _ in range(COUNT):
            t = compiled.next_after(t)
            fires.append(t // 1_000_000)
        return fires


def questions(chance: Random, count: int) -> list[Question]:
    found: list[Question] = []
    while len(found) < count:
        question = _question(chance)
        if not _names_every_day(question.expr):
            found.append(question)
    return found


def _names_every_day(expr: str) -> bool:
    """All days as a list can make croniter hold both day fields against a date; by the rules either matches."""
    fields = parse(expr).fields
    return any(fields[i].mask == FIELDS[i].everything and not expr.split()[i - 1].startswith("*") for i in (3, 5))


def _question(chance: Random) -> Question:
    zone = chance.choice(ZONES)
    after = chance.randrange(FROM, TO)
    starts, offsets = zone_of(zone).table
    place = bisect_right(starts, after)
    change = starts[place]
    # croniter loses instants where another time than an hour is repeated: among test_croniter7's differences
    odd = change < TO and 0 < offsets[place - 1] - offsets[place] != 3600
    if chance.random() < 0.6 and change < TO and not odd:  # the night of a change
        after = change + chance.randrange(-DAY, DAY) // 60 * 60 + chance.choice((0, 0, 1, 59))
    minute = _field(chance, 0, 59)
    hour = chance.choice(("1", "2", "3", "0", "23", "0,1", "1-3", "2/4", "*", "*/2", _field(chance, 0, 23)))
    month = chance.choice(("*", "*", "*", _field(chance, 1, 12, MONTH_NAMES)))
    day, weekday = "*", "*"
    kind = chance.randrange(6)
    if kind in (1, 3):
        # nW beside a weekday leaves the weekday out there, either matches by the rules
        day = chance.choice((_field(chance, 1, 31), "L", "L,15", f"{chance.randint(1, 28)}W" if kind == 1 else "9"))
    if kind in (2, 3):
        weekday = _field(chance, 0, 6, DAY_NAMES)
    if kind == 4:
        weekday = f"{chance.choice(DAY_NAMES)}#{chance.randint(1, 5)}"
    theirs = weekday
    if kind == 5:
        number = chance.randint(0, 6)
        weekday, theirs = f"{number}L", f"L{number}"
    head = f"{minute} {hour} {day} {month}"
    return Question(f"{head} {weekday}", f"{head} {theirs}", zone, after)


def _field(chance: Random, low: int, high: int, names: list[str] | None = None) -> str:
    """No a-a range (the whole field there)."""

    def item() -> str:
        shape = chance.randrange(6)
        value = chance.randint(low, high)
        if shape <= 1:
            return chance.choice(names) if names and shape else str(value)
        a, b = sorted(chance.sample(range(low, high + 1), 2))
        if shape == 2:
            return f"{a}-{b}"
        step = chance.randint(1, high - low)
        return (f"*/{step}", f"{a}-{b}/{step}", f"{a}/{step}")[shape - 3]

    return ",".join(item() for _ in range(chance.choice((1, 1, 1, 2, 3))))
