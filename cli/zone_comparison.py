"""Where PostgreSQL's own time zone data and ours differ, for the zones in use.

Jobs fire by ours. PostgreSQL's decides what a wall time in a user's SQL means and
what a NOTICE says of clock changes, so people should know where the two part.

Asked are the last second before and the first after every change of ours in the next
five years, and every week between: a change that only PostgreSQL has, or has at
another instant, makes one of them differ. The first instant is then found by halving.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cli.checks import OK, WARNING, Check
from cli.output import count
from cronstream.schedule.instants import utc_text
from cronstream.schedule.zones import Zone

DAY = 86_400
YEARS = 5
_WEEK = 7 * DAY
_SHOWN = 20

Offsets = Callable[[Sequence[int]], list[int]]
"""seconds since the epoch -> PostgreSQL's offsets there"""


@dataclass(frozen=True, slots=True)
class Difference:
    """From `second` on PostgreSQL counts otherwise; `theirs` is None where it does not know the zone."""

    zone: str
    second: int
    ours: int
    theirs: int | None

    def as_json(self) -> dict[str, object]:
        """As ``--json`` prints it."""
        if self.theirs is None:
            return {"zone": self.zone, "known": False}
        first, ours, theirs = utc_text(self.second * 1_000_000), offset_text(self.ours), offset_text(self.theirs)
        return {"zone": self.zone, "known": True, "first": first, "ours": ours, "postgres": theirs}


def samples(zone: Zone, now: int, years: int = YEARS) -> list[int]:
    """The seconds to ask: both sides of every change of ours, and every week, in order."""
    end = now + years * 366 * DAY
    starts, offsets = zone.reach(end)
    seconds = set(range(now, end, _WEEK))
    for i in range(bisect_right(starts, now), len(offsets)):
        if starts[i] >= end:
            break
        seconds |= {max(starts[i] - 1, now), starts[i]}
    return sorted(seconds)


def first_difference(zone: Zone, seconds: Sequence[int], theirs: Sequence[int], ask: Offsets) -> Difference | None:
    """The first instant at which PostgreSQL's offset is another than ours; None when none is found."""
    for place, (second, offset) in enumerate(zip(seconds, theirs, strict=True)):
        if offset == zone.offset_at(second):
            continue
        low = seconds[place - 1] if place else second - 1
        high, found = second, offset
        while high - low > 1:  # ours is constant between two samples: halving finds a change of theirs
            middle = (low + high) // 2
            (there,) = ask([middle])
            if there == zone.offset_at(middle):
                low = middle
            else:
                high, found = middle, there
        return Difference(zone.name, high, zone.offset_at(high), found)
    return None


def judge(zones: Sequence[str], differences: Sequence[Difference], sampled: bool) -> Check:
    """What to say of it."""
    name, seen = (
        "zones in postgres",
        f"{count(len(zones), 'zone')} in use{' in a sample of the definitions' if sampled else ''}",
    )
    if not differences:
        return Check(name, OK, f"{seen}: PostgreSQL's data is as ours for {YEARS} years")
    shown = "; ".join(map(_sentence, differences[:_SHOWN]))
    more = f"; and {len(differences) - _SHOWN} more" if len(differences) > _SHOWN else ""
    return Check(
        name,
        WARNING,
        f"{len(differences)} of {seen} differ: {shown}{more}",
        "jobs fire by ours; wall times in SQL and its notices follow PostgreSQL's: "
        "update the server's time zone data (the system's tzdata, or PostgreSQL itself) and restart it",
        [one.as_json() for one in differences],
    )


def _sentence(one: Difference) -> str:
    if one.theirs is None:
        return f"{one.zone} (unknown to PostgreSQL)"
    at = utc_text(one.second * 1_000_000)
    return f"{one.zone} from {at} (ours {offset_text(one.ours)}, PostgreSQL's {offset_text(one.theirs)})"


def offset_text(seconds: int) -> str:
    """``+05:30``."""
    minutes, rest = divmod(abs(seconds), 60)
    tail = f":{rest:02}" if rest else ""
    return f"{'-' if seconds < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}{tail}"
