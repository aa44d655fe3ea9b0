"""Valid but surprising: the INSERT succeeds, and a NOTICE says what Python's preview would say."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

import psycopg
import pytest

from cronstream.schedule.compiled import compile_cron
from cronstream.schedule.cron import hash_key
from cronstream.schedule.errors import ScheduleError
from cronstream.schedule.notices import notices_of
from tests.support import expressions

Conn = psycopg.Connection[tuple[Any, ...]]

# Zones of all kinds: half an hour, midnight, the south, none, a gap twice a year
ZONES = (
    "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Asia/Beirut",
    "Pacific/Chatham", "Asia/Kolkata", "Antarctica/Troll", "CET", "EST5EDT", "Atlantic/Azores",
)  # fmt: skip


@pytest.fixture
def heard() -> list[str]:
    return []


@pytest.fixture
def conn(database: str, heard: list[str]) -> Iterator[Conn]:
    """A transaction that is rolled back; what it is told is in `heard`."""
    with psycopg.connect(database) as conn:
        conn.add_notice_handler(lambda told: heard.append(str(told.message_primary)))
        yield conn
        conn.rollback()


def insert(conn: Conn, cron: str, name: str = "job", **columns: Any) -> None:
    values = {"name": name, "handler": "log", "cron": cron, **columns}
    conn.execute(
        f"INSERT INTO cronstream.job_definitions ({', '.join(values)}) VALUES ({', '.join(['%s'] * len(values))})",  # type: ignore[arg-type]
        list(values.values()),
    )


@pytest.mark.parametrize(
    ("cron", "columns", "told"),
    [
        ("0 0 13 * 5", {}, 'day of month "13" and day of week "5" are both restricted: '),
        ("*/60 * * * *", {}, 'minute: "*/60" matches 0 alone, like "0"'),
        ("*/45 * * * *", {}, 'minute: "*/45" goes from 45 to 0, a step of 15: 45 does not divide 60'),
        ("0 0 1 */5 *", {}, 'month: "*/5" goes from 11 to 1, a step of 2: 5 does not divide 12'),
        ("0 0 */31 * *", {}, 'day of month: "*/31" matches 1 alone, like "1"'),
        ("30 2 * * *", {"timezone": "Europe/Berlin"}, "02:30 does not exist on "),
        ("30 2 * * *", {"timezone": "Europe/Berlin"}, "the job fires at 03:00 instead, "),
        ("30 2 * * *", {"timezone": "Europe/Berlin", "dst_gap": "skip"}, "the job does not fire for it (dst_gap)"),
        ("*/5 2 * * *", {"timezone": "America/New_York"}, "the job does not fire for it (dst_gap)"),
    ],
)
def test_what_surprises_is_told(conn: Conn, heard: list[str], cron: str, columns: dict[str, str], told: str) -> None:
    insert(conn, cron, **columns)
    assert len(heard) == 1
    assert heard[0].startswith("job 'job': ")
    assert told in heard[0]


@pytest.mark.parametrize(
    "cron", ["0 9 * * MON-FRI", "*/5 * * * *", "0 0 ? * MON", "0 0 1 * *", "@daily", "30 2 29 2 *"]
)
def test_what_does_not_surprise_is_not(conn: Conn, heard: list[str], cron: str) -> None:
    insert(conn, cron, timezone="Europe/Berlin")
    assert heard == []


def test_an_edit_tells_of_a_new_schedule_alone(conn: Conn, heard: list[str]) -> None:
    insert(conn, "0 0 1 * *")
    for change in (
        "cron = '0 0 13 * 5'",
        "enabled = false",
        "timezone = 'UTC'",
        "handler = 'log', cron = '0 0 13 * 5'",
    ):
        conn.execute(f"UPDATE cronstream.job_definitions SET {change}")  # type: ignore[arg-type]
    assert len(heard) == 1


def test_an_interval_is_no_matter_of_notices(conn: Conn, heard: list[str]) -> None:
    conn.execute("INSERT INTO cronstream.job_definitions (name, handler, every) VALUES ('job', 'log', 'PT90S')")
    conn.execute("UPDATE cronstream.job_definitions SET every = 'PT91S'")
    assert heard == []


def test_a_bulk_insert_tells_of_its_first_hundred(conn: Conn, heard: list[str]) -> None:
    conn.execute(
        "INSERT INTO cronstream.job_definitions (name, handler, cron)"
        " SELECT 'job ' || n, 'log', '0 0 13 * 5' FROM generate_series(1, 1000) AS n"
    )
    assert len(heard) == 100


def test_a_zone_that_this_server_does_not_know_is_no_obstacle(conn: Conn) -> None:
    row = conn.execute(
        "SELECT cronstream.cron_notices('30 2 * * *', 't', 'n', 'Mars/Olympus', 'auto', now())"
    ).fetchone()
    assert row == ([],)
    zones = conn.execute("SELECT current_setting('TimeZone'), name FROM cronstream.zones").fetchall()
    for own, zone in zones:
        insert(conn, "30 2 * * *", name=zone, timezone=zone)
        assert conn.execute("SELECT current_setting('TimeZone')").fetchone() == (own,)


def test_notices_are_python_s_word_for_word(conn: Conn) -> None:
    """Over the whole language, in zones whose rules Postgres and tzdata have alike."""
    chance = Random(20261129)
    checked = gaps = 0
    while checked < 2000:
        if chance.random() < 0.5:
            minute, hour = (
                chance.choice(("30", "0", "*", "*/20", "H")),
                chance.choice(("0", "2", "1-3", "*/2", "H(0-3)")),
            )
            day, weekday = chance.choice(("*", "*", "28", "L", "*/7")), chance.choice(("*", "sun", "MON#2", "7L"))
            text = f"{minute} {hour} {day} * {weekday}"
        else:
            text = expressions.sentence(chance)
        zone, gap, name = chance.choice(ZONES), chance.choice(("auto", "shift", "skip")), f"job {checked}"
        now = datetime(2026, 1, 1, tzinfo=UTC).timestamp() + chance.randrange(4 * 365 * 86400)
        key = hash_key("tenant", name)
        try:
            if compile_cron(text, zone, dst_gap=gap, hash_key=key).next_after(int(now) * 1_000_000) is None:
                continue
        except ScheduleError:
            continue
        expected = notices_of(text, zone, now_us=int(now) * 1_000_000, dst_gap=gap, hash_key=key)
        row = conn.execute(
            "SELECT cronstream.cron_notices(%s, 'tenant', %s, %s, %s, to_timestamp(%s))",
            (text, name, zone, gap, int(now)),
        ).fetchone()
        assert row is not None
        assert tuple(row[0]) == expected, (text, zone, gap, now)
        checked += 1
        gaps += any("does not exist" in notice for notice in expected)
    assert gaps > 100


def test_a_single_time_that_is_past_is_told_with_what_to_do(database: str) -> None:
    heard: list[tuple[str, str]] = []
    with psycopg.connect(database) as conn:
        conn.add_notice_handler(lambda told: heard.append((str(told.message_primary), str(told.message_hint))))
        one_time = "INSERT INTO cronstream.job_definitions (name, run_at, handler, enabled) VALUES (%s, %s, 'log', %s)"
        conn.execute(one_time, ["late", "2020-01-01T00:00:00Z", True])
        conn.execute(one_time, ["paused", "2020-01-01T00:00:00Z", False])
        conn.execute(one_time, ["later", "2999-01-01T00:00:00Z", True])
        assert [said.partition(" is past: it does not run")[0] for said, _ in heard] == [
            "job 'late': run_at 2020-01-01 00:00:00+00"
        ]
        assert heard[0][1] == "SELECT cronstream.run_now('default', 'late') runs it now."
        conn.execute("UPDATE cronstream.job_definitions SET run_at = '2021-01-01Z' WHERE name = 'later'")
        conn.execute("UPDATE cronstream.job_definitions SET payload = '{\"a\": 1}'")
        conn.execute("UPDATE cronstream.job_definitions SET enabled = true WHERE name = 'paused'")
        conn.execute("UPDATE cronstream.job_definitions SET enabled = false WHERE name = 'paused'")
        conn.rollback()
    assert [said.partition("does not run")[2] for said, _ in heard] == [
        ", and history says so",
        ", and history says so",
        " any more",
    ]


def test_a_schedule_that_ended_is_told_as_a_single_time_is(conn: Conn, heard: list[str]) -> None:
    over, told = "2020-01-01T00:00:00Z", "ends_at 2020-01-01 00:00:00+00 is past: it does not run any more"
    conn.execute("SET TIME ZONE 'UTC'")
    insert(conn, "@daily", "cron", ends_at=over)
    conn.execute(
        "INSERT INTO cronstream.job_definitions (name, handler, every, anchor, ends_at, enabled)"
        " SELECT name, 'log', '1 hour', '2019-01-01Z', %s, name = 'every'"
        " FROM unnest(ARRAY['every', 'paused']) AS name",
        [over],
    )
    insert(conn, "@daily", "later", ends_at="2999-01-01Z")
    assert heard == [f"job '{name}': {told}" for name in ("cron", "every")]
    heard.clear()
    conn.execute("UPDATE cronstream.job_definitions SET payload = '{\"a\": 1}', misfire_policy = 'SKIP'")
    assert heard == []
    conn.execute("UPDATE cronstream.job_definitions SET enabled = true WHERE name = 'paused'")
    conn.execute("UPDATE cronstream.job_definitions SET ends_at = %s WHERE name = 'later'", [over])
    assert heard == [f"job '{name}': {told}" for name in ("paused", "later")]


def test_a_handler_that_workers_must_allow_is_told_of_once_a_session(conn: Conn, heard: list[str]) -> None:
    payloads = {
        "command": '{"argv": ["true"]}',
        "python": '{"entry_point": "a:b"}',
        "sql": '{"connection": "c", "statement": "SELECT 1"}',
    }
    for round_ in range(2):
        for handler, payload in payloads.items():
            insert(conn, "@daily", f"{handler} {round_}", handler=handler, payload=payload)
    insert(conn, "@daily", "http", handler="http", payload='{"url": "https://example.org"}')
    assert [said.partition(" runs only on workers with ")[0] for said in heard] == [
        f"handler {handler}" for handler in payloads
    ]
    assert "CRONSTREAM_COMMAND_ENABLED=true: on others its runs fail for good" in heard[0]
