"""Durations as ISO 8601 and PostgreSQL write them, and intervals that never drift."""

from __future__ import annotations

import pytest

from cronstream.schedule import Every, Once, ScheduleError, parse_every

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PT90S", 90 * SECOND),
        ("pt1m30s", 90 * SECOND),
        ("PT1.5S", 1_500_000),
        ("PT0.5H", HOUR // 2),
        ("P1DT12H", 36 * HOUR),
        ("P2W", 14 * DAY),
        ("P1W2DT3H4M5.000006S", 9 * DAY + 3 * HOUR + 245 * SECOND + 6),
        (" PT90S ", 90 * SECOND),
        ("90 seconds", 90 * SECOND),
        ("90s", 90 * SECOND),
        ("1 hour 30 minutes", 90 * 60 * SECOND),
        ("01:30:00", 90 * 60 * SECOND),
        ("00:01:30.5", 90_500_000),
        ("1 day 02:00:00", 26 * HOUR),
        ("1d 2h", 26 * HOUR),
        ("@ 5 min", 300 * SECOND),
        ("2 weeks", 14 * DAY),
        ("1500 ms", 1_500_000),
        ("1.5 hours", 90 * 60 * SECOND),
        ("1 DAY", DAY),
        ("1:30", 90 * 60 * SECOND),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert parse_every(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "PT0S",
        "PT0.9S",
        "0s",
        "-PT5S",
        "-5 seconds",
        "5",
        "NaN",
        "PTNaNS",
        "PT5X",
        "5x",
        "1 hour ago",
        "PT1S1M",
        "P1M",
        "P1Y",
        "1 month",
        "1 year 2 days",
        "1 mon",
        "P1MT5S",
        "PT1.0000005S",
        "PT1e3S",
        "1e3 s",
        "1,5 s",
        "PT-5S",
        "9" * 30 + "s",
        "P99999999W",
        "1 hour 1:70",
        "five minutes",
        "\uff15s",
        "P1D" * 100,
        "1 s\n",
        None,
        5,
        1.5,
        True,
        ["PT5S"],
    ],
)
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_every(text)
    assert caught.value.field == "every"


@pytest.mark.parametrize("text", ["P1M", "1 month", "P2Y3D"])
def test_months_have_no_length_and_the_hint_says_where_they_go(text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse_every(text)
    assert "cron" in caught.value.hint


def test_fires_are_counted_from_the_anchor() -> None:
    every = Every(37 * SECOND, 1000)
    assert every.next_after(-(10**15)) == 1000
    assert every.next_after(999) == 1000
    assert every.next_after(1000) == 1000 + 37 * SECOND
    assert every.next_after(1000 + 10**9 * 37 * SECOND - 1) == 1000 + 10**9 * 37 * SECOND
    assert every.count(0, 1000) == 1
    assert every.count(1001, 1000 + 74 * SECOND) == 2
    assert every.count(-(10**12), 999) == 0


def test_once_is_one_instant() -> None:
    once = Once(5)
    assert [once.next_after(4), once.next_after(5)] == [5, None]
    assert [once.count(0, 4), once.count(5, 5), once.count(6, 9)] == [0, 1, 0]
