"""Redrives in SQL: which end of a run is tried again, once, and what of it is known."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from cli.runs import history
from sql.queries import load
from tests.support.requests import Conn, call, definition, ended, one, transaction_with_a_job


@pytest.fixture
def conn(database: str) -> Iterator[Conn]:
    """A transaction that is rolled back, with the job default/job."""
    with transaction_with_a_job(database) as conn:
        yield conn


LETTER = (
    'INSERT INTO cronstream.dead_letters (identity, reason, stage, error, at, topic, partition, "offset", job_ids,'
    " scheduled_time, request_id, attempts, value, letter_partition, letter_offset)"
    " VALUES (%s, 'exhausted', 'settle', 'no', now(), 't', 0, 0, ARRAY[%s::bigint], %s, %s, %s, '', 0, 0)"
)


def test_the_same_end_of_a_run_is_redriven_once(conn: Conn) -> None:
    job_id = definition(conn)["job_id"]
    run = (job_id, "2026-01-01T00:00:00Z", 0)
    ended(conn, *run)
    first = call(conn, "redrive", *run, 5)
    assert (first["idempotency_key"], first["attempt"]) == (f"{job_id}-1767225600000000-0", 6)
    assert call(conn, "redrive", *run, 5) == first
    ended(conn, *run, attempt=10)
    assert call(conn, "redrive", *run, 10)["attempt"] == 11


def test_a_run_that_was_not_given_up_is_not_redriven(conn: Conn) -> None:
    job_id = definition(conn)["job_id"]
    at = [f"2026-01-01T00:{minute:02}:00Z" for minute in (0, 5, 10, 15)]
    for scheduled, attempt in zip(at, (2, 1, 1, 1), strict=True):
        ended(conn, job_id, scheduled, attempt=attempt)
    conn.execute("UPDATE cronstream.job_runs SET outcome = 'succeeded' WHERE scheduled_time = %s", [at[1]])
    conn.execute(
        "INSERT INTO cronstream.running_attempts VALUES (%s, %s, 0, 2, 'default', 'job', now(), 'w1')", [job_id, at[2]]
    )
    conn.execute(
        "UPDATE cronstream.job_runs SET attempt = 0, outcome = 'skipped', reason = 'overlap' WHERE scheduled_time = %s",
        [at[3]],
    )
    for scheduled, attempts, says in (
        (at[0], 5, "is none that is known: the last of this run is 2"),
        (at[1], 1, "succeeded: attempt 1 of this run did"),
        (at[2], 1, "is not over: attempt 2 of this run runs since"),
        (at[3], 1, "did not take place: this run was skipped (overlap)"),
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue) as caught, conn.transaction():
            call(conn, "redrive", job_id, scheduled, 0, attempts)
        assert says in str(caught.value)
        assert caught.value.diag.column_name == "attempts"
    assert call(conn, "redrive", job_id, at[0], 0, 2)["attempt"] == 3


def test_the_future_is_not_forgotten(conn: Conn) -> None:
    for age in ("-1 day", None):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="older_than") as caught, conn.transaction():
            call(conn, "forget_requests", age)
        assert caught.value.diag.column_name == "older_than"
    assert call(conn, "forget_requests", "30 days") == 0


def test_a_redrive_in_sql_decides_the_dead_letter_of_that_end_and_no_other(conn: Conn) -> None:
    job_id = definition(conn)["job_id"]
    at = "2026-01-01T00:00:00Z"
    for identity, letter in ((b"1", (at, 0, 5)), (b"2", (at, 0, 10)), (b"3", ("2026-01-01T00:05:00Z", 0, 5))):
        conn.execute(LETTER, [identity, job_id, *letter])
    call(conn, "redrive", job_id, at, 0, 10, "mine")
    decided = conn.execute(
        "SELECT identity, decided_by = session_user, decided_at IS NOT NULL FROM cronstream.dead_letters"
        " WHERE state = 'redriven'"
    ).fetchall()
    assert decided == [(b"2", True, True)]


def test_an_attempt_that_is_known_is_not_made_again(conn: Conn) -> None:
    job_id = definition(conn)["job_id"]
    at = "2026-01-01T00:00:00Z"
    ended(conn, job_id, at, 0, 5)
    first = call(conn, "redrive", job_id, at, 0, 5)
    ended(conn, job_id, at, 0, 6)
    assert call(conn, "redrive", job_id, at, 0, 5) == first  # the same end once more
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="attempt 6 of this run is known") as caught:
        call(conn, "redrive", job_id, at, 0, 5, "an id of its own")
    assert caught.value.diag.column_name == "attempts"


def test_a_letter_that_comes_after_the_redrive_is_redriven_already(conn: Conn) -> None:
    job_id = definition(conn)["job_id"]
    at = "2026-01-01T00:00:00Z"
    ended(conn, job_id, at)
    call(conn, "redrive", job_id, at, 0, 5)
    queries = load("dead_letters")
    conn.execute(queries["stage_letters"])
    for offset, (scheduled, attempts) in enumerate(((at, 5), (at, 10), (None, None))):
        conn.execute(
            "INSERT INTO staged_letters SELECT %s::text::bytea, 'exhausted', 'settle', 'no', now(), 't', 0, 0,"
            " ARRAY[%s::bigint], NULL, NULL, %s::timestamptz, 0, %s::int, NULL, NULL, '', '[]', false, 0, %s",
            [str(offset), job_id, scheduled, attempts, offset],
        )
    conn.execute(queries["keep_letters"])
    states = conn.execute("SELECT state, decided_by FROM cronstream.dead_letters ORDER BY letter_offset").fetchall()
    assert states == [("redriven", one(conn, "SELECT session_user")), ("open", None), ("open", None)]


def test_history_says_from_when_on_a_run_could_be_late(conn: Conn) -> None:
    job_id = definition(conn)["job_id"]
    at = "2026-01-01T00:00:00Z"
    many = call(conn, "backfill", "default", "job", at, at)["request_id"]
    for request_id, attempt in ((0, 1), (0, 2), (many, 1), (77_000_000, 1)):
        ended(conn, job_id, at, request_id, attempt)
    call(conn, "redrive", job_id, at, 0, 2)
    ended(conn, job_id, at, 0, 3)
    rows = history(conn, 9, job_id=job_id)
    asked = dict(conn.execute("SELECT kind, requested_at FROM cronstream.requests").fetchall())
    assert {(row["request_id"], row["attempt"]): row["due"] for row in rows} == {
        (0, 1): rows[0]["scheduled_time"],
        (0, 2): None,  # a retry
        (0, 3): asked["redrive"],
        (many, 1): asked["backfill"],
        (77_000_000, 1): None,  # forgotten
    }


def test_a_run_is_known_by_its_request_by_history_or_by_its_letter(conn: Conn) -> None:
    job_id = definition(conn)["job_id"]
    now = call(conn, "run_now", "default", "job")
    many = call(conn, "backfill", "default", "job", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")
    pause = call(conn, "pause", "default", "job", "p")
    assert pause["accepted"]
    paused = one(conn, "SELECT number FROM cronstream.requests WHERE id = 'p'")
    conn.execute(LETTER, [b"1", job_id, "2026-01-01T06:00:00Z", 77_000_000, 3])
    for scheduled_time, request_id in (
        (now["scheduled_time"], now["request_id"]),
        ("2026-01-01T12:00:00Z", many["request_id"]),
        ("2026-01-01T06:00:00Z", 77_000_000),
    ):
        assert call(conn, "redrive", job_id, scheduled_time, request_id, 3)["attempt"] == 4
    for field, scheduled_time, request_id in (
        ("request_id", now["scheduled_time"], 999_999_999),  # never was
        ("request_id", now["scheduled_time"], paused),  # has no runs
        ("request_id", "2026-01-01T00:00:00Z", now["request_id"]),  # ran at another instant
        ("request_id", "2026-01-03T00:00:00Z", many["request_id"]),  # beyond its range
        ("scheduled_time", "2026-01-01T00:00:01Z", 0),  # the schedule had none
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue) as caught, conn.transaction():
            call(conn, "redrive", job_id, scheduled_time, request_id, 3)
        assert caught.value.diag.column_name == field
        assert f"belongs to no run of job {job_id} that is known" in str(caught.value)
        assert "cronstream.dead_letters or cronstream.job_runs" in (caught.value.diag.message_hint or "")


def test_a_run_is_not_redriven_under_an_id_of_something_else_but_after_its_job_was_renamed(conn: Conn) -> None:
    job_id = definition(conn)["job_id"]
    run = (job_id, "2026-01-01T00:00:00Z", 0, 5)
    ended(conn, *run[:3])
    call(conn, "run_now", "default", "job", "mine")
    with pytest.raises(psycopg.errors.UniqueViolation, match="used for run-now of default/job"), conn.transaction():
        call(conn, "redrive", *run, "mine")
    first = call(conn, "redrive", *run)
    conn.execute("UPDATE cronstream.job_definitions SET name = 'renamed'")
    assert call(conn, "redrive", *run) == first
