"""What people and machines see of upcoming times, and the notices of a definition."""

from __future__ import annotations

import json

import pytest

from cronstream.schedule import schedule_of
from cronstream.schedule.instants import local_text, parse_instant, utc_text
from cronstream.schedule.notices import notices_of
from cronstream.schedule.preview import MAX_COUNT, preview_line, upcoming

NOW = parse_instant("t", "2026-11-29T00:00:00Z")


def ask(**record: object) -> dict:
    line = preview_line(json.dumps({"after": "2026-11-29T00:00:00Z", **record}))
    assert "\n" not in line
    return json.loads(line)


def test_a_time_moved_by_a_gap_is_marked() -> None:
    schedule = schedule_of(cron="30 2 * * *", timezone="America/New_York")
    fires = upcoming(schedule, "America/New_York", parse_instant("t", "2026-03-07T12:00:00Z"), 2)
    assert [(f.utc, f.local, f.moved) for f in fires] == [
        ("2026-03-08T07:00:00Z", "2026-03-08T03:00:00-04:00", True),
        ("2026-03-09T06:30:00Z", "2026-03-09T02:30:00-04:00", False),
    ]


def test_a_real_time_at_the_end_of_a_gap_is_not_marked() -> None:
    schedule = schedule_of(cron="0 2,3 * * *", timezone="America/New_York")
    (fire,) = upcoming(schedule, "America/New_York", parse_instant("t", "2026-03-08T06:00:00Z"), 1)
    assert (fire.utc, fire.moved) == ("2026-03-08T07:00:00Z", False)


def test_intervals_and_ends_show_what_there_is() -> None:
    schedule = schedule_of(every_us=1_500_000, anchor_us=NOW, ends_at_us=NOW + 3_000_000)
    fires = upcoming(schedule, "Asia/Kolkata", NOW, 9)
    assert [f.utc for f in fires] == ["2026-11-29T00:00:01.500000Z", "2026-11-29T00:00:03Z"]
    assert fires[1].local == "2026-11-29T05:30:03+05:30"


def test_instants_as_text() -> None:
    assert utc_text(0) == "1970-01-01T00:00:00Z"
    assert local_text(0, -2670) == "1969-12-31T23:15:30-00:44:30"
    assert parse_instant("t", "1970-01-01T01:00:00.000001+01:00") == 1


def test_lines_answer_and_echo_their_id() -> None:
    answer = ask(id="a", expr="0 9 * * *", tz="Europe/Berlin", count=1)
    assert answer == {"id": "a", "fires": ["2026-11-29T08:00:00Z"]}
    assert ask(id={"any": ["thing"]}, expr="@daily", count=0) == {"id": {"any": ["thing"]}, "fires": []}
    assert len(ask(id=1, expr="@daily")["fires"]) == 5
    assert ask(id=1, every="PT90S", count=1)["fires"] == ["2026-11-29T00:01:30Z"]
    assert ask(id=1, every="90 seconds", anchor="2027-01-01T00:00:00Z", count=1)["fires"] == ["2027-01-01T00:00:00Z"]
    assert "fires" in ask(id=1, expr="H H * * *", tenant="t", name="n")
    skipped = ask(expr="30 2 8 3 *", tz="America/New_York", dst_gap="skip", count=1, after="2026-01-01T00:00:00Z")
    assert skipped["fires"] == ["2027-03-08T07:30:00Z"]


@pytest.mark.parametrize(
    "line",
    [
        "",
        " ",
        "null",
        "5",
        "[]",
        '"x"',
        "{",
        "[" * 100_000,
        '{"id":NaN}',
        '{"id":1e999}',
        "\x00",
        "\ud800",
        '{"id":' + "9" * 5000 + "}",
        '{"id":1,"expr":"* * * * *"}',
        '{"id":1,"expr":"* * * * *","after":5}',
        '{"id":1,"expr":"* * * * *","after":"2026-11-29T00:00:00"}',
        '{"id":1,"expr":"* * * * *","after":"0001-01-01T00:00:00+23:00","count":true}',
    ],
)
def test_no_line_stops_the_stream(line: str) -> None:
    answer = json.loads(preview_line(line))
    assert set(answer) == {"id", "error"}


@pytest.mark.parametrize(
    "record",
    [
        {"expr": "* * * * *", "count": -1},
        {"expr": "* * * * *", "count": MAX_COUNT + 1},
        {"expr": "* * * * *", "count": "5"},
        {"expr": "* * * * *", "every": "PT5S"},
        {"every": 90},
        {"every": "PT5S", "anchor": None},
        {"every": "PT5S", "tz": "Mars"},
        {"expr": "H * * * *", "tenant": 5},
        {"expr": "* * * * *", "dst_gap": []},
        {},
    ],
)
def test_bad_values_are_errors_of_their_line(record: dict) -> None:
    assert "not allowed" in ask(id=7, **record)["error"]


def test_extreme_instants_answer_too() -> None:
    for after in ("0002-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9998-12-31T23:59:00Z"):
        for zone in ("UTC", "Pacific/Auckland", "America/New_York"):
            assert "fires" in ask(expr="0 * * * *", tz=zone, after=after)
        assert "fires" in ask(every="PT5S", after=after)
    for after in ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00"):
        assert "after" in ask(every="PT5S", after=after)["error"]


@pytest.mark.parametrize(
    ("text", "rule", "part"),
    [
        ("30 2 * * *", {}, "fires at 03:00 instead"),
        ("30 2 * * *", {"dst_gap": "skip"}, "does not fire"),
        ("*/15 2 * * *", {}, "02:00 does not exist on 2027-03-14"),
        ("*/15 2 * 3 SUN#2", {}, "never fires again"),
        ("0 9 13 * 5", {}, "both restricted"),
        ("*/60 * * * *", {}, '"*/60" matches 0 alone'),
    ],
)
def test_surprises_are_told(text: str, rule: dict, part: str) -> None:
    (notice,) = notices_of(text, "America/New_York", now_us=NOW, **rule)
    assert part in notice


@pytest.mark.parametrize("text", ["* * * * *", "0 * * * *", "0 9 * * *", "0 0-23 * * *", "0 4 * * 1-5"])
def test_no_notice_without_surprise(text: str) -> None:
    assert notices_of(text, "America/New_York", now_us=NOW) == ()
    assert notices_of("30 2 * * *", "UTC", now_us=NOW) == ()
