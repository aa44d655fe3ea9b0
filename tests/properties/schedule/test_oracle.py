"""The engine against the walk: every fire around clock changes, for generated expressions."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cronstream.schedule import ScheduleError, compile_cron, zone_names
from tests.properties.schedule import generate, oracle

HOUR = 3600
DAY = 86_400
# Half-hour and two-hour shifts, gaps at and before midnight, Ramadan pairs, southern summers.
ODD_ZONES = [
    "America/New_York",
    "Europe/Berlin",
    "Europe/London",
    "Europe/Dublin",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "America/Havana",
    "Asia/Beirut",
    "America/Santiago",
    "Atlantic/Azores",
    "America/Nuuk",
    "Africa/Casablanca",
    "Pacific/Chatham",
    "Africa/Cairo",
    "America/St_Johns",
    "Asia/Jerusalem",
    "Europe/Chisinau",
    "Pacific/Easter",
]
FIXED = ["0 9 * * *", "30 2 * * *", "0,15,30,45 0-5 * * *", "59 23 * * *", "0 0 * * *", "5/20 1/2 * * *"]
WILDCARD = ["* * * * *", "*/7 * * * *", "*/15 2 * * *", "0 */2 * * *", "20 */3 * * *"]
COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)


def compiled_or_never(text: str, zone: str, **rules):
    """None for an expression that is refused because no date matches; anything else wrong is a failure."""
    try:
        return compile_cron(text, zone, **rules)
    except ScheduleError as refusal:
        if "never meet" in refusal.hint:
            return None
        raise


def engine_fires(compiled, first: int, last: int) -> list[int]:
    found = []
    t = first * 1_000_000 - 1
    while (t := compiled.next_after(t)) is not None and t <= last * 1_000_000:
        assert t % 1_000_000 == 0
        found.append(t // 1_000_000)
    return found


def check(text: str, zone: str, first: int, last: int, *, step: int = 60, margin: int = 6 * HOUR, **rules) -> None:
    compiled = compiled_or_never(text, zone, **{f"dst_{name}": value for name, value in rules.items()})
    if compiled is None:
        return
    expected = oracle.fires(text, zone, first, last, step=step, margin=margin, **rules)
    assert engine_fires(compiled, first, last) == expected, (text, zone, first, rules)
    assert compiled.count(first * 1_000_000, last * 1_000_000) == len(expected)
    for nth in range(12):  # asked from instants all over the stretch, on and between seconds
        asked = first * 1_000_000 + (last - first) * nth * 83_333 + nth % 2
        following = compiled.next_after(asked)
        assert following is None or following > asked
        later = [t for t in expected if t * 1_000_000 > asked]
        assert not later or following == later[0] * 1_000_000, (text, zone, asked, rules)


zone_and_change = st.sampled_from(ODD_ZONES).flatmap(
    lambda zone: st.tuples(st.just(zone), st.sampled_from(oracle.transitions(zone, 2026, 2036)))
)
rules = st.fixed_dictionaries(
    {}, optional={"gap": st.sampled_from(["shift", "skip"]), "overlap": st.sampled_from(["first", "second", "both"])}
)


@settings(COMMON, max_examples=300)
@given(zone_and_change, st.one_of(generate.daily, generate.five_fields), rules)
def test_a_night_of_change_fires_as_the_walk_says(where, text, chosen) -> None:
    zone, change = where
    check(text, zone, change - 4 * HOUR, change + 4 * HOUR, **chosen)


@settings(COMMON, max_examples=25)
@given(zone_and_change, st.tuples(generate.minute, generate.daily).map(" ".join), rules)
def test_six_fields_fire_by_the_second(where, text, chosen) -> None:
    zone, change = where
    check(text, zone, change - HOUR, change + HOUR, step=1, margin=5 * HOUR // 2, **chosen)


@pytest.mark.parametrize("text", ["59 59 2 * * *", "0 0 2 * * *", "59 59 1 * * *", "0 0 3 * * *", "*/29 59 1,2 * * *"])
@pytest.mark.parametrize("overlap", ["first", "second", "both"])
@pytest.mark.parametrize("gap", ["shift", "skip"])
def test_first_and_last_seconds_of_a_change(text: str, gap: str, overlap: str) -> None:
    for zone in ("America/New_York", "Europe/Berlin", "Australia/Lord_Howe"):
        for change in oracle.transitions(zone, 2026, 2036)[:2]:
            check(text, zone, change - HOUR, change + HOUR, step=1, margin=3 * HOUR, gap=gap, overlap=overlap)


@settings(COMMON, max_examples=150)
@given(generate.day, generate.month, generate.weekday, st.integers(1970, 2110))
def test_the_days_are_those_of_the_calendar(day, month, weekday, year) -> None:
    text = f"0 0 {day} {month} {weekday}"
    compiled = compiled_or_never(text, "UTC")
    if compiled is None:
        return
    expression = oracle.read_expression(text)
    start = oracle.date(year, 1, 1)
    dates = (start + oracle.timedelta(days=n) for n in range(500))
    expected = [(d.toordinal() - 719_163) * DAY for d in dates if expression.day_matches(d)]
    first = (start.toordinal() - 719_163) * DAY
    assert engine_fires(compiled, first, first + 499 * DAY) == expected, text
    assert compiled.count(first * 1_000_000, (first + 499 * DAY) * 1_000_000) == len(expected)


@settings(COMMON, max_examples=40)
@given(st.sampled_from(sorted(zone_names())), generate.five_fields, st.integers(1973, 2150), st.integers(1, 365))
def test_any_day_of_any_zone_fires_as_the_walk_says(zone, text, year, day) -> None:
    start = oracle.calendar.timegm((year, 1, day, 0, 0, 0))
    check(text, zone, start, start + DAY, margin=26 * HOUR)


@pytest.mark.parametrize(
    ("zone", "year"),
    [
        ("Pacific/Apia", 2011),
        ("Pacific/Kwajalein", 1993),
        ("Pacific/Fakaofo", 2011),
        ("America/Caracas", 2007),
        ("Asia/Pyongyang", 2018),
        ("Europe/Moscow", 2014),
        ("America/Sao_Paulo", 2018),
        ("Asia/Amman", 2017),
        ("Asia/Tehran", 2022),
        ("Europe/Volgograd", 2020),
        ("Africa/Juba", 2021),
        ("Antarctica/Casey", 2020),
    ],
)
def test_past_changes_of_rules_and_skipped_days(zone: str, year: int) -> None:
    for change, text in itertools.product(oracle.transitions(zone, year, year), FIXED + WILDCARD):
        check(text, zone, change - 30 * HOUR, change + 30 * HOUR, margin=26 * HOUR)


def test_a_change_of_every_set_of_rules() -> None:
    chance = random.Random(20261129)
    for zone in chance.sample(sorted(zone_names()), 120):
        changes = oracle.transitions(zone, 2026, 2028)
        for change in changes[:2]:
            for text in (chance.choice(FIXED), chance.choice(WILDCARD)):
                check(text, zone, change - 3 * HOUR, change + 3 * HOUR, margin=3 * HOUR)


@pytest.mark.long
def test_every_change_of_the_next_ten_years_in_all_zones() -> None:
    for zone in sorted(zone_names()):
        oracle.walk.cache_clear()
        for change in oracle.transitions(zone, 2026, 2036):
            for text in FIXED + WILDCARD:
                check(text, zone, change - 5 * HOUR, change + 5 * HOUR, margin=4 * HOUR)


@pytest.mark.long
@settings(COMMON, max_examples=20_000)
@given(zone_and_change, st.one_of(generate.daily, generate.five_fields), rules)
def test_many_nights_of_change(where, text, chosen) -> None:
    zone, change = where
    check(text, zone, change - 4 * HOUR, change + 4 * HOUR, **chosen)
