"""Backfills in SQL: which times they have, from where they count, and when there is none."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.requests import Conn, call, definition, one, transaction_with_a_job


@pytest.fixture
def conn(database: str) -> Iterator[Conn]:
    """A transaction that is rolled back, with the job default/job."""
    with transaction_with_a_job(database) as conn:
        yield conn


def test_a_backfill_stands_before_its_first_instant(conn: Conn) -> None:
    answer = call(conn, "backfill", "default", "job", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00")
    assert (answer["begins"], answer["ends"]) == ("2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:00.000000Z")
    assert one(conn, "SELECT cronstream.us(cursor) FROM cronstream.requests") == 1_767_225_599_999_999


@pytest.mark.parametrize(
    ("columns", "begins", "ends", "runs"),
    [
        ({"cron": "*/5 * * * *"}, "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", 13),
        ({"cron": "* * * * * *"}, "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:01.5Z", 1),
        ({"cron": "30 2 * * *", "timezone": "Europe/Berlin"}, "2026-03-28Z", "2026-03-30T23:00Z", 3),
        # 02:30 is moved to this instant
        ({"cron": "30 2 * * *", "timezone": "Europe/Berlin"}, "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z", 1),
        ({"cron": "0 0 * * *", "timezone": "CET"}, "2026-06-30T22:00:00Z", "2026-06-30T22:00:00Z", 1),
        ({"every": "1 minute", "anchor": "2026-01-01T00:00:30Z"}, "2025-01-01Z", "2026-01-01T00:02:30Z", 3),
        ({"every": "1 minute", "anchor": "2026-01-01T00:00:30Z"}, "2026-01-01T00:00:31Z", "2026-01-01T00:02:29Z", 1),
        ({"every": "1 minute", "anchor": "2026-01-01T00:00:30Z"}, "2026-01-01T00:00:30Z", "2026-01-01T00:00:30Z", 1),
        ({"run_at": "2026-01-01T00:00:30Z"}, "2026-01-01Z", "2026-01-02Z", 1),
        ({"cron": "@hourly", "starts_at": "2026-01-01T05:00Z"}, "2026-01-01Z", "2026-01-01T07:00Z", 3),
        ({"cron": "@hourly", "ends_at": "2026-01-01T05:00Z"}, "2026-01-01T03:00Z", "2026-01-01T07:00Z", 3),
    ],
)  # fmt: skip
def test_a_backfill_says_how_many_runs_it_makes(
    conn: Conn, columns: dict[str, str], begins: str, ends: str, runs: int
) -> None:
    call(conn, "upsert", "default", "counted", Jsonb({**columns, "handler": "log"}))
    assert call(conn, "backfill", "default", "counted", begins, ends)["runs"] == runs


def test_an_interval_counts_from_the_anchor_that_the_leader_found(conn: Conn) -> None:
    call(conn, "upsert", "default", "interval", Jsonb({"every": "1 hour", "handler": "log"}))
    range_ = ("2026-01-01T00:30:00Z", "2026-01-01T04:00:00Z")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="has no scheduled time"), conn.transaction():
        call(conn, "backfill", "default", "interval", *range_)
    conn.execute(
        "INSERT INTO cronstream.schedules (job_id, version, revision, anchor) VALUES (%s, 1, 1, '2026-01-01T00:15Z')",
        [definition(conn, "interval")["job_id"]],
    )
    assert call(conn, "backfill", "default", "interval", *range_)["runs"] == 3


def test_a_zone_that_this_server_does_not_know_leaves_the_number_open(conn: Conn) -> None:
    conn.execute("ALTER TABLE cronstream.job_definitions DISABLE TRIGGER USER")
    conn.execute("UPDATE cronstream.job_definitions SET timezone = 'Mars/Phobos'")
    before = one(conn, "SELECT current_setting('TimeZone')")
    assert call(conn, "backfill", "default", "job", "2026-01-01Z", "2026-01-02Z")["runs"] is None
    assert one(conn, "SELECT current_setting('TimeZone')") == before


@pytest.mark.parametrize(
    ("columns", "hint"),
    [
        ({"cron": "0 12 * * *"}, "Ask for a range that holds one."),
        ({"cron": "0 12 * * *", "timezone": "Asia/Tokyo"}, "Ask for a range that holds one."),
        ({"every": "1 hour", "anchor": "2026-01-01T06:30:00Z"}, "anchor, 2026-01-01T06:30:00.000000Z: set anchor"),
        ({"every": "1 day", "anchor": "2025-12-01T06:30:00Z"}, "Ask for a range that holds one."),
        ({"run_at": "2026-01-01T07:00:00Z"}, "Ask for a range that holds one."),
        ({"cron": "@hourly", "starts_at": "2026-01-02Z"}, "between its starts_at and ends_at"),
        ({"cron": "@hourly", "ends_at": "2025-01-02Z"}, "between its starts_at and ends_at"),
    ],
)
def test_a_range_without_a_scheduled_time_is_refused_with_the_reason_in_sql_and_as_a_command(
    conn: Conn, columns: dict[str, str], hint: str
) -> None:
    call(conn, "upsert", "default", "idle", Jsonb({**columns, "handler": "log"}))
    begins, ends = "2026-01-01T04:00:00Z", "2026-01-01T06:00:00Z"
    with pytest.raises(psycopg.errors.InvalidParameterValue) as caught, conn.transaction():
        call(conn, "backfill", "default", "idle", begins, ends)
    diagnosis = caught.value.diag
    no_time = "has no scheduled time from 2026-01-01T04:00:00.000000Z to 2026-01-01T06:00:00.000000Z"
    assert no_time in (diagnosis.message_primary or "")
    assert diagnosis.column_name == "ends"
    assert hint in (diagnosis.message_hint or "")
    command = {"command": "backfill", "id": "b", "name": "idle", "begins": begins, "ends": ends}
    error = call(conn, "apply_command", Jsonb(command))["error"]
    assert (error["message"], error["hint"]) == (diagnosis.message_primary, diagnosis.message_hint)
