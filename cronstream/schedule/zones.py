"""Time zones from one pinned place: the files of PyPI's tzdata package, and nothing else.

Python's zoneinfo prefers the system's files, and those of two machines differ; two nodes that
disagree about one offset would plan one job for two instants. So the package's files are read
here directly: no search path, no environment variable, no fallback. `TZDATA_VERSION` is stored
with every plan.

A zone is a table of stretches with one offset each, made once and shared:

    starts   [-∞, T1, T2, …, Tn, END]     UTC seconds; stretch i is [starts[i], starts[i+1])
    offsets  [o0, o1, o2, …, on]          seconds east of UTC

so that the offset at t is `offsets[bisect_right(starts, t) - 1]`. Years after the file's last
explicit change follow its POSIX rule and are written into the table when first asked for; END
is the instant up to which the table is complete.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cache
from importlib import import_module
from importlib.resources import files

from cronstream.schedule.errors import ScheduleError
from cronstream.schedule.tzif import DAY, Rule, days_before_year, read

TZDATA_VERSION = str(import_module("tzdata").IANA_VERSION)

LAST_YEAR = 9999
"""No instant of this year or later is ever computed: the end of every search."""

_FIRST_REACH = 2070
_FURTHER_REACH = 64
_BEGINNING = -(2**62)
_FOREVER = 2**62


@cache
def zone_names() -> frozenset[str]:
    """Exactly the IANA keys of the pinned data."""
    return frozenset((files("tzdata") / "zones").read_text("ascii").split())


class Zone:
    """One zone's offsets over all time. Get it from `zone_of`: equal names, same object."""

    __slots__ = ("_known_to_year", "_rule", "_ruled_from", "name", "table")

    def __init__(self, name: str, data: bytes) -> None:
        before, changes, self._ruled_from, rule = read(data)
        self.name = name
        self._rule: Rule | None = rule if rule is not None and rule.start else None
        starts = [_BEGINNING, *(instant for instant, _ in changes)]
        offsets = [before, *(offset for _, offset in changes)]
        if rule is not None and not rule.start and offsets[-1] != rule.std:
            raise ValueError(f"{name}: the rule contradicts the last change")
        self._known_to_year = 1970 + max(self._ruled_from, 0) // (366 * DAY)
        self.table = (starts, offsets)
        if self._rule is None:
            starts.append(_FOREVER)
        else:
            starts.append(starts[-1])
            self._extend(_FIRST_REACH)

    def _extend(self, to_year: int) -> None:
        assert self._rule is not None
        starts, offsets = self.table[0][:-1], self.table[1][:]
        for year in range(self._known_to_year, to_year):
            for instant, offset in self._rule.changes(year):
                if instant > self._ruled_from and offset != offsets[-1]:
                    starts.append(instant)
                    offsets.append(offset)
        starts.append(days_before_year(to_year) * DAY)
        self._known_to_year = to_year
        self.table = (starts, offsets)  # one assignment: readers see the old table or the new one

    def reach(self, second: int) -> tuple[list[int], list[int]]:
        """The table, complete for at least `second` and some decades more (until LAST_YEAR)."""
        while self.table[0][-1] <= second < _FOREVER and self._known_to_year <= LAST_YEAR:
            self._extend(min(self._known_to_year + _FURTHER_REACH, LAST_YEAR + 1))
        return self.table

    def offset_at(self, second: int) -> int:
        """Seconds east of UTC at the UTC second."""
        starts, offsets = self.reach(second)
        return offsets[min(bisect_right(starts, second), len(offsets)) - 1]

    def next_gap(self, second: int, until: int) -> tuple[int, int, int] | None:
        """The first forward change in (second, until]: (instant, offset before, offset after)."""
        starts, offsets = self.reach(until)
        for i in range(bisect_right(starts, second), len(offsets)):
            if starts[i] > until:
                return None
            if offsets[i] > offsets[i - 1]:
                return starts[i], offsets[i - 1], offsets[i]
        return None


@cache
def _load(name: str) -> Zone:
    path = files("tzdata") / "zoneinfo"
    for part in name.split("/"):
        path = path / part
    return Zone(name, path.read_bytes())


def zone_of(name: object) -> Zone:
    """The zone of an IANA key; anything else is a ScheduleError of field `timezone`."""
    if not isinstance(name, str) or name not in zone_names():
        hint = ""
        if isinstance(name, str) and name:
            folded = {known.casefold(): known for known in zone_names()}
            near = folded.get(name.strip().casefold()) or next(
                (known for known in sorted(zone_names()) if known.endswith("/" + name)), ""
            )
            hint = f'did you mean "{near}"?' if near else ""
        allowed = f'an IANA zone name of tzdata {TZDATA_VERSION}, such as "Europe/Berlin" or "UTC"'
        raise ScheduleError("timezone", name, allowed, hint)
    return _load(name)
