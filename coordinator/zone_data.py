"""Time zone data and the plans made with it. Pure.

Which instant "09:00 in Vancouver" is can change with the data. A row of
``schedules`` says which data it was planned with; when that is not ours, a time
in the future says only that nothing up to now is owed, so the schedule is asked
anew from now on. A time that has passed is owed as it was planned.
"""

from __future__ import annotations

import re

from cronstream.schedule import TZDATA_VERSION

_VERSION = re.compile(r"(\d{4})([a-z]+)")


def is_older(version: str, than: str | None) -> bool:
    """Whether one release of the time zone database (2026f) came before another."""
    return than is not None and _order(version) < _order(than)


def lower_bound(next_us: int, planned_with: str | None, now_us: int) -> int:
    """What a row's next time says with our data: no time before this is owed."""
    return next_us if planned_with == TZDATA_VERSION else min(next_us, now_us + 1)


def _order(version: str) -> tuple[int, int, str]:
    found = _VERSION.fullmatch(version)
    return (int(found[1]), len(found[2]), found[2]) if found else (0, 0, version)
