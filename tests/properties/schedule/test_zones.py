"""Offsets against zoneinfo, held to the same tzdata: every zone, near and far."""

from __future__ import annotations

import random
import zoneinfo
from itertools import pairwise

from cronstream.schedule.tzif import days_before_year
from cronstream.schedule.zones import zone_names, zone_of
from tests.properties.schedule import oracle

DAY = 86_400


def offset(tz: zoneinfo.ZoneInfo, t: int) -> int:
    found = (oracle.EPOCH + oracle.timedelta(seconds=t)).astimezone(tz).utcoffset()
    assert found is not None
    return found // oracle.timedelta(seconds=1)


def test_names_are_exactly_the_keys_of_the_pinned_data() -> None:
    assert zone_names() == zoneinfo.available_timezones()


def test_offsets_at_and_before_every_change_and_far_from_them() -> None:
    chance = random.Random(7)
    begin, end = days_before_year(1800) * DAY, days_before_year(2600) * DAY
    for name in sorted(zone_names()):
        zone, tz = zone_of(name), zoneinfo.ZoneInfo(name)
        changes = zone.table[0][1:-1]
        near = [t + d for t in chance.sample(changes, min(12, len(changes))) for d in (-1, 0)]
        far = [chance.randrange(begin, end) for _ in range(6)]
        for t in near + far:
            assert zone.offset_at(t) == offset(tz, t), (name, t)


def test_changes_lie_further_apart_than_any_shift() -> None:
    """The search looks at one change at a time: a repeated hour never reaches back over two."""
    for name in zone_names():
        starts, offsets = zone_of(name).table
        for (a, b), (before, after) in zip(pairwise(starts[1:-1]), pairwise(offsets[1:]), strict=True):
            assert b - a > 2 * abs(after - before), name
            assert abs(after - before) <= DAY, name


def test_the_far_future_follows_the_rule_of_four_hundred_years() -> None:
    cycle = 146_097 * DAY
    for name in ("America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "America/Santiago"):
        zone = zone_of(name)
        for day in range(0, 1000, 13):
            t = days_before_year(2100) * DAY + day * DAY
            assert zone.offset_at(t) == zone.offset_at(t + cycle) == zone.offset_at(t + 15 * cycle)
