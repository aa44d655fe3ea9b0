"""The brute-force oracle against values worked out by hand."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from cronstream.schedule import tzif as tzif_reader
from tests.faults.events import Edit, Rule
from tests.faults.oracle import SECOND, Expected
from tests.faults.zones import jumps_at, tzif


def us(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * SECOND


def times(rule: Rule, begin: str, end: str, committed: str | None = None) -> list[str]:
    expected = Expected([Edit(1, us(committed or begin), rule)], us(begin), us(end))
    return [datetime.fromtimestamp(at / SECOND, UTC).strftime("%d %H:%M:%S") for at in expected.times[1]]


def test_an_interval_counts_from_the_commit_and_not_from_the_window() -> None:
    rule = Rule(every_us=25 * SECOND)
    assert times(rule, "2026-11-29T12:00:30", "2026-11-29T12:01:20", committed="2026-11-29T12:00:00") == [
        "29 12:00:50",
        "29 12:01:15",
    ]


def test_bounds_are_inclusive_and_the_commit_is_not() -> None:
    at = "2026-11-29T12:00:00"
    rule = Rule(cron="* * * * *", starts_at_us=us("2026-11-29T12:02:00"), ends_at_us=us("2026-11-29T12:03:00"))
    assert times(rule, at, "2026-11-29T13:00:00") == ["29 12:02:00", "29 12:03:00"]
    assert times(Rule(cron="* * * * *"), at, "2026-11-29T12:01:00") == ["29 12:01:00"]


def test_the_spread_is_part_of_the_time() -> None:
    rule = Rule(cron="0 * * * *", spread_us=90 * SECOND)
    assert times(rule, "2026-11-29T11:59:00", "2026-11-29T13:01:00") == ["29 12:01:30"]


@pytest.mark.parametrize(
    ("cron", "zone", "begin", "end", "fires"),
    [
        # New York falls back at 06:00Z on 1 November 2026 and springs forward at 07:00Z on 8 March.
        ("30 1 * * *", "America/New_York", "2026-11-01T05:00:00", "2026-11-01T07:30:00", ["01 05:30:00"]),
        ("*/30 1 * * *", "America/New_York", "2026-11-01T04:59:00", "2026-11-01T07:30:00",
         ["01 05:00:00", "01 05:30:00", "01 06:00:00", "01 06:30:00"]),
        ("30 2 * * *", "America/New_York", "2026-03-08T06:00:00", "2026-03-08T08:00:00", ["08 07:00:00"]),
        ("*/30 2 * * *", "America/New_York", "2026-03-08T06:00:00", "2026-03-08T08:00:00", []),
        ("15,45 2 * * *", "America/New_York", "2026-03-08T06:00:00", "2026-03-08T08:00:00", ["08 07:00:00"]),
        ("0 9 * * 1-5", "Asia/Kolkata", "2026-11-30T03:00:00", "2026-11-30T04:00:00", ["30 03:30:00"]),
        ("15 30 9 * * 1-5", "UTC", "2026-11-30T09:00:00", "2026-11-30T10:00:00", ["30 09:30:15"]),
        ("0 0 13 * 5", "UTC", "2026-11-12T23:00:00", "2026-11-13T01:00:00", ["13 00:00:00"]),
    ],
)  # fmt: skip
def test_the_wall_clock_decides(cron: str, zone: str, begin: str, end: str, fires: list[str]) -> None:
    assert times(Rule(cron=cron, timezone=zone), begin, end) == fires


@pytest.mark.parametrize(
    ("cron", "forward", "back"),
    [  # minutes from the change at 02:00: forward to 02:02, or back to 01:58
        ("* * * * *", [-2, -1, 0, 1, 2, 3], [-2, -1, 0, 1, 2, 3]),
        ("58,59 1 * * *", [-2, -1], [-2, -1]),
        ("* 1 * * *", [-2, -1], [-2, -1, 0, 1]),
        ("0-5 2 * * *", [0, 1, 2, 3], [2, 3]),
        ("1 2 * * *", [0], [3]),
        ("*/2 2 * * *", [0, 2], [2]),
    ],
)
def test_a_zone_of_the_run_s_own_changes_in_its_middle(cron: str, forward: list[int], back: list[int]) -> None:
    begin = us("2026-11-29T12:00:00")
    for jump, fires in zip(jumps_at(begin - 5), (forward, back), strict=True):
        assert jump.at_us == begin
        expected = Expected(
            [Edit(1, begin - 121 * SECOND, Rule(cron=cron, timezone=jump.zone))],
            begin - 121 * SECOND,
            begin + 200 * SECOND,
            [jump],
        )
        assert [(at - begin) // (60 * SECOND) for at in expected.times[1]] == fires


@pytest.mark.parametrize("instant", ["2026-11-29T00:30:00", "2026-11-29T12:00:00", "2026-11-29T23:59:59"])
def test_the_run_s_own_data_is_read_as_it_was_meant(instant: str) -> None:
    for jump in jumps_at(us(instant)):
        data = tzif(jump)
        zone = ZoneInfo.from_file(io.BytesIO(data))
        for after in (-1, 0):
            shown = datetime.fromtimestamp(jump.at_us // SECOND + after, zone)
            offset = shown.utcoffset()
            assert offset is not None
            assert offset.total_seconds() == (jump.before_seconds if after else jump.after_seconds)
        assert shown.strftime("%H:%M:%S") == ("02:02:00" if jump.after_seconds > jump.before_seconds else "01:58:00")
        read = tzif_reader.read(data)
        assert read.before == jump.before_seconds
        assert read.changes == [(jump.at_us // SECOND, jump.after_seconds)]
        assert read.rule is not None
        assert read.rule.std == jump.after_seconds


def test_a_definition_holds_to_the_commit_of_the_next_one() -> None:
    begin = us("2026-11-29T12:00:00")
    edits = [
        Edit(1, begin, Rule(every_us=10 * SECOND)),
        Edit(1, begin + 20 * SECOND, Rule(every_us=7 * SECOND)),
        Edit(1, begin + 28 * SECOND, Rule(every_us=7 * SECOND, enabled=False)),
        Edit(1, begin + 40 * SECOND, Rule(every_us=7 * SECOND)),
        Edit(1, begin + 50 * SECOND, None),
    ]
    expected = Expected(edits, begin, begin + 60 * SECOND)
    assert [(at - begin) // SECOND for at in expected.times[1]] == [10, 20, 27, 41, 48]
    version = expected.in_force(1, begin + 45 * SECOND)
    assert version is not None
    assert version.anchor_us == begin + 20 * SECOND, "pausing leaves the anchor alone"
