"""H and spread: stable, even, inside their windows; the exact values are a promise to running fleets."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from cronstream.schedule import compile_cron, schedule_of
from cronstream.schedule.cron import hash_key, hash_word

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US


def test_the_words_of_a_digest_do_not_change() -> None:
    assert hash_key("tenant", "name") == "tenant\0name"
    words = [hash_word("tenant\0name", word) for word in range(8)]
    assert words == [
        2_721_963_670,
        1_523_423_273,
        3_723_831_505,
        479_697_028,
        4_227_451_887,
        352_909_926,
        190_719_190,
        4_138_106_267,
    ]


def test_a_fleet_spreads_itself_over_the_hour() -> None:
    minutes = Counter(
        compile_cron("H * * * *", "UTC", hash_key=hash_key("t", f"job {n}")).next_after(-1) // 60_000_000
        for n in range(6000)
    )
    assert set(minutes) == set(range(60))
    assert max(minutes.values()) < 160


@pytest.mark.parametrize(
    ("text", "allowed"),
    [("H(10-14) * * * *", range(10, 15)), ("H(7-7) * * * *", range(7, 8)), ("H(30-59)/10 * * * *", range(30, 60))],
)
def test_a_window_holds_all_picks(text: str, allowed: range) -> None:
    for n in range(200):
        compiled = compile_cron(text, "UTC", hash_key=hash_key("t", str(n)))
        t, seen = -1, []
        while (t := compiled.next_after(t)) < HOUR_US:
            seen.append(t // 60_000_000)
        assert set(seen) <= set(allowed)
        if "/" in text:
            assert len(seen) == 3
            assert {b - a for a, b in pairwise(seen)} == {10}


def test_a_hashed_step_keeps_its_distance_from_a_hashed_start() -> None:
    starts = set()
    for n in range(100):
        compiled = compile_cron("H/15 * * * *", "UTC", hash_key=hash_key("t", str(n)))
        first = compiled.next_after(-1)
        starts.add(first // 60_000_000)
        assert compiled.next_after(first) - first == 15 * 60_000_000
    assert starts == set(range(15))


def test_a_hashed_day_of_month_comes_every_month() -> None:
    for n in range(200):
        compiled = compile_cron("H H H * *", "UTC", hash_key=hash_key("t", str(n)))
        first = compiled.next_after(-1)
        assert compiled.next_after(first) - first == 31 * DAY_US


def test_spread_is_whole_seconds_inside_the_window_and_part_of_the_scheduled_time() -> None:
    offsets = set()
    for n in range(300):
        schedule = schedule_of(cron="0 * * * *", spread_seconds=60, tenant="t", name=str(n))
        first = schedule.next_after(-1)
        assert schedule.next_after(first) - first == HOUR_US
        assert schedule.next_after(first - 1) == first
        assert first % 1_000_000 == 0
        offsets.add(first // 1_000_000)
    assert offsets <= set(range(60))
    assert len(offsets) > 50
