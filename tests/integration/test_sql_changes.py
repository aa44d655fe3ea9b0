"""job_changes: one row an edit, in order, and none for what did not happen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

Conn = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def conn(database: str) -> Iterator[Conn]:
    with psycopg.connect(database, autocommit=True) as conn:
        yield conn
        conn.execute("DELETE FROM cronstream.job_definitions")
        conn.execute("DELETE FROM cronstream.job_changes")


def add(conn: Conn, name: str, cron: str = "@daily") -> int:
    row = conn.execute(
        "INSERT INTO cronstream.job_definitions (name, cron, handler) VALUES (%s, %s, 'log') RETURNING job_id",
        (name, cron),
    ).fetchone()
    assert row is not None
    return int(row[0])


def changes(conn: Conn) -> list[tuple[Any, ...]]:
    return conn.execute(
        "SELECT job_id, kind, previous ->> 'cron' FROM cronstream.job_changes ORDER BY change_id"
    ).fetchall()


def test_each_edit_is_one_row_in_order(conn: Conn) -> None:
    job = add(conn, "a", "0 * * * *")
    conn.execute("UPDATE cronstream.job_definitions SET cron = '1 * * * *' WHERE job_id = %s", (job,))
    conn.execute("UPDATE cronstream.job_definitions SET payload = '[]' WHERE job_id = %s", (job,))
    conn.execute("DELETE FROM cronstream.job_definitions WHERE job_id = %s", (job,))
    assert changes(conn) == [
        (job, "insert", None),
        (job, "update", "0 * * * *"),
        (job, "update", "1 * * * *"),
        (job, "delete", "1 * * * *"),
    ]
    revisions = [row[0] for row in conn.execute("SELECT revision FROM cronstream.job_changes ORDER BY change_id")]
    assert revisions == sorted(set(revisions))


def test_edits_of_one_transaction_are_in_order_too(conn: Conn) -> None:
    with conn.transaction():
        first, second = add(conn, "a"), add(conn, "b")
        conn.execute("UPDATE cronstream.job_definitions SET enabled = false WHERE job_id = %s", (second,))
        conn.execute("UPDATE cronstream.job_definitions SET enabled = false WHERE job_id = %s", (first,))
        conn.execute("DELETE FROM cronstream.job_definitions WHERE job_id = %s", (second,))
    assert [row[:2] for row in changes(conn)] == [
        (first, "insert"),
        (second, "insert"),
        (second, "update"),
        (first, "update"),
        (second, "delete"),
    ]


def test_a_change_carries_the_definition_s_revision(conn: Conn) -> None:
    job = add(conn, "a")
    conn.execute("UPDATE cronstream.job_definitions SET spread_seconds = 1 WHERE job_id = %s", (job,))
    row = conn.execute(
        "SELECT (SELECT revision FROM cronstream.job_definitions), max(revision) FROM cronstream.job_changes"
    ).fetchone()
    assert row is not None
    assert row[0] == row[1]


def test_an_update_that_changes_nothing_writes_nothing(conn: Conn) -> None:
    add(conn, "a")
    add(conn, "b")
    before = conn.execute("SELECT revision, updated_at FROM cronstream.job_definitions ORDER BY job_id").fetchall()
    assert conn.execute("UPDATE cronstream.job_definitions SET name = name, revision = revision").rowcount == 2
    conn.execute("UPDATE cronstream.job_definitions SET name = 'c' WHERE false")
    conn.execute("DELETE FROM cronstream.job_definitions WHERE false")
    assert len(changes(conn)) == 2
    assert (
        conn.execute("SELECT revision, updated_at FROM cronstream.job_definitions ORDER BY job_id").fetchall() == before
    )


def test_only_the_rows_that_changed_are_told(conn: Conn) -> None:
    add(conn, "a", "@daily")
    job = add(conn, "b", "@hourly")
    conn.execute("UPDATE cronstream.job_definitions SET cron = '@daily'")
    assert changes(conn)[2:] == [(job, "update", "@hourly")]


def test_a_rollback_and_a_savepoint_leave_nothing(conn: Conn) -> None:
    with conn.transaction():
        kept = add(conn, "kept")
        with conn.transaction(force_rollback=True):
            add(conn, "undone")
            conn.execute("UPDATE cronstream.job_definitions SET enabled = false")
    with conn.transaction(force_rollback=True):
        add(conn, "never")
    assert changes(conn) == [(kept, "insert", None)]


def test_a_refused_row_takes_its_whole_statement_back(conn: Conn) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        conn.execute(
            "INSERT INTO cronstream.job_definitions (name, cron, handler)"
            " VALUES ('good', '@daily', 'log'), ('bad', 'nonsense', 'log')"
        )
    assert changes(conn) == []


def test_an_upsert_is_told_as_what_it_did(conn: Conn) -> None:
    job = add(conn, "a", "@hourly")
    conn.execute(
        "INSERT INTO cronstream.job_definitions (name, cron, handler)"
        " VALUES ('a', '@daily', 'log'), ('b', '@daily', 'log')"
        " ON CONFLICT (tenant, name) DO UPDATE SET cron = EXCLUDED.cron"
    )
    told = changes(conn)[1:]
    assert (job, "update", "@hourly") in told
    assert [row[1] for row in told if row[0] != job] == ["insert"]


def test_merge_is_told_as_what_it_did(conn: Conn) -> None:
    gone, kept = add(conn, "gone"), add(conn, "kept", "@hourly")
    conn.execute(
        "MERGE INTO cronstream.job_definitions d USING"
        " (VALUES ('kept', '@daily'), ('gone', NULL), ('new', '@daily')) w (n, c)"
        " ON d.name = w.n WHEN MATCHED AND c IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET cron = c"
        " WHEN NOT MATCHED THEN INSERT (name, cron, handler) VALUES (n, c, 'log')"
    )
    told = {row[:2] for row in changes(conn)[2:]}
    assert {(gone, "delete"), (kept, "update")} < told
    assert len(told) == 3


def test_the_previous_schedule_is_whole_and_in_microseconds(conn: Conn) -> None:
    conn.execute(
        "INSERT INTO cronstream.job_definitions (tenant, name, every, anchor, timezone, handler, starts_at, ends_at,"
        " misfire_grace, misfire_policy, catch_up_limit, dst_gap, dst_overlap, spread_seconds, enabled)"
        " VALUES ('t', 'a', '1 day 00:00:00.000007', '1999-12-31T23:59:59.999999Z', 'Asia/Tokyo', 'log', '2026-01-01Z',"
        " '9000-01-01Z', '90 seconds', 'CATCH_UP', 7, 'skip', 'both', 3, false)"
    )
    conn.execute("DELETE FROM cronstream.job_definitions")
    row = conn.execute("SELECT previous FROM cronstream.job_changes WHERE kind = 'delete'").fetchone()
    assert row is not None
    assert row[0] == {
        "tenant": "t",
        "name": "a",
        "cron": None,
        "every_us": 86_400_000_007,
        "run_at_us": None,
        "anchor_us": 946_684_799_999_999,
        "timezone": "Asia/Tokyo",
        "starts_at_us": 1_767_225_600_000_000,
        "ends_at_us": 221_845_392_000_000_000,
        "enabled": False,
        "misfire_policy": "CATCH_UP",
        "misfire_grace_us": 90_000_000,
        "catch_up_limit": 7,
        "dst_gap": "skip",
        "dst_overlap": "both",
        "spread_seconds": 3,
    }


def test_edits_of_one_job_by_two_sessions_are_ordered_as_they_commit(conn: Conn, database: str) -> None:
    job = add(conn, "a")
    update = "UPDATE cronstream.job_definitions SET spread_seconds = spread_seconds + 1 WHERE job_id = %s"
    with psycopg.connect(database) as other:
        other.execute(update, (job,))
        conn.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            conn.execute(update, (job,))
        other.commit()
    conn.execute("RESET lock_timeout")
    conn.execute(update, (job,))
    rows = conn.execute("SELECT revision FROM cronstream.job_changes ORDER BY change_id").fetchall()
    assert rows == sorted(rows)
    assert len(rows) == 3


def test_a_bulk_insert_however_written_is_told_row_by_row(conn: Conn) -> None:
    """The guard against chosen job ids must not stumble over plans that sort or repeat."""
    select = "SELECT 'job-' || i, '@daily', 'log' FROM generate_series(1, 3000) i"
    into = "INSERT INTO cronstream.job_definitions (name, cron, handler)"
    for tail in (
        "",
        " ORDER BY md5(i::text)",
        " ORDER BY i DESC LIMIT 1000",
        " UNION ALL SELECT 'last', '@daily', 'log'",
    ):
        conn.execute(f"{into} {select}{tail}")  # type: ignore[arg-type]
        row = conn.execute(
            "SELECT count(*), count(DISTINCT c.job_id), count(d.job_id) FROM cronstream.job_changes c"
            " LEFT JOIN cronstream.job_definitions d USING (job_id, revision)"
        ).fetchone()
        stored = conn.execute("SELECT count(*) FROM cronstream.job_definitions").fetchone()
        assert row is not None
        assert stored is not None
        assert row == (stored[0],) * 3
        conn.execute("DELETE FROM cronstream.job_definitions")
        conn.execute("DELETE FROM cronstream.job_changes")


def test_changes_wait_for_nobody_but_the_row_s_own_editors(conn: Conn, database: str) -> None:
    """An open transaction of one user holds up no edit of another job."""
    first, second = add(conn, "a"), add(conn, "b")
    with psycopg.connect(database) as other:
        other.execute("UPDATE cronstream.job_definitions SET enabled = false WHERE job_id = %s", (first,))
        conn.execute("SET statement_timeout = '2s'")
        conn.execute("UPDATE cronstream.job_definitions SET enabled = false WHERE job_id = %s", (second,))
        conn.execute("INSERT INTO cronstream.schedules VALUES (%s, now(), 1, 1)", (first,))
        conn.execute("RESET statement_timeout")


def test_columns_of_the_users_own_come_and_go_between_edits(conn: Conn) -> None:
    """Each kind of change to the table, and after each an edit and a deletion that are told as ever."""
    for number, change in enumerate(
        (
            "ADD COLUMN note text",
            "ADD COLUMN noted_at timestamptz DEFAULT now()",
            "ADD COLUMN marked uuid DEFAULT gen_random_uuid()",
            "ALTER COLUMN note TYPE varchar(40)",
            "RENAME COLUMN note TO remark",
            "DROP COLUMN remark, DROP COLUMN noted_at, DROP COLUMN marked",
        )
    ):
        conn.execute(f"ALTER TABLE cronstream.job_definitions {change}")
        job = add(conn, f"altered-{number}")
        conn.execute("UPDATE cronstream.job_definitions SET cron = '1 * * * *' WHERE job_id = %s", [job])
        conn.execute("DELETE FROM cronstream.job_definitions WHERE job_id = %s", [job])
        told = [row[1:] for row in changes(conn) if row[0] == job]
        assert told == [("insert", None), ("update", "@daily"), ("delete", "1 * * * *")], change


@pytest.mark.parametrize(
    ("written", "us"),
    [
        ("timestamptz '2026-11-30 01:02:03.000001Z'", 1_796_000_523_000_001),
        ("timestamptz '1969-12-31 23:59:59.999999Z'", -1),
        ("timestamptz '0001-01-03 00:00:00Z'", -62_135_424_000_000_000),
        ("timestamptz '9999-12-29 01:02:03.456789Z'", 253_402_045_323_456_789),
        ("timestamptz 'infinity'", 2**62),
        ("timestamptz '294276-01-01Z'", 2**62),
        ("timestamptz '-infinity'", -(2**62)),
        ("NULL::timestamptz", None),
        ("interval '36500 days 00:00:01.000001'", 3_153_600_001_000_001),
        ("interval '-1 microsecond'", -1),
        ("interval '170000000 years'", 2**62),
        ("NULL::interval", None),
    ],
)
def test_instants_and_spans_are_microseconds_and_bounded(conn: Conn, written: str, us: int | None) -> None:
    assert conn.execute(f"SELECT cronstream.us({written})").fetchone() == (us,)


def test_reading_microseconds_calls_no_function(conn: Conn) -> None:
    """Postgres puts the body in its place: a call costs six times as much, and a definition has eight of them."""
    plan = conn.execute("EXPLAIN (VERBOSE, COSTS OFF) SELECT * FROM cronstream.job_rules").fetchall()
    assert "us(" not in " ".join(row[0] for row in plan)


def test_telling_the_previous_schedule_calls_no_function(conn: Conn) -> None:
    plan = conn.execute(
        "EXPLAIN (VERBOSE, COSTS OFF) SELECT cronstream.schedule_of(ROW(d.*)::cronstream.job_definitions)"
        " FROM cronstream.job_definitions d"
    ).fetchall()
    text = " ".join(row[0] for row in plan)
    assert "jsonb_build_object(" in text
    assert "schedule_of(" not in text


@pytest.mark.parametrize("schedule", ["every = '3 minutes'", "ends_at = '2999-01-01 00:00Z'", "enabled = false"])
def test_a_large_statement_goes_through_no_pairs_of_rows(conn: Conn, schedule: str) -> None:
    """Whatever plan the session keeps of earlier statements; all pairs of these rows would take minutes."""
    conn.execute(
        "INSERT INTO cronstream.job_definitions (name, every, ends_at, handler)"
        " SELECT 'j' || i, '1 day', '2998-01-01 00:00Z', 'log' FROM generate_series(1, 30000) i"
    )
    update = f"UPDATE cronstream.job_definitions SET {schedule}"
    for one in range(1, 9):
        conn.execute(f"{update} WHERE name = 'j{one}'")
    conn.execute("SET statement_timeout = '40s'")
    assert conn.execute(update).rowcount == 30000
