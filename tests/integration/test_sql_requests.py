"""Requests in SQL: what each function does, answers and refuses, and that an id is answered once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from cli.runs import history
from sql.queries import load

Conn = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def conn(database: str) -> Iterator[Conn]:
    """A transaction that is rolled back, with the job default/job."""
    with psycopg.connect(database) as conn:
        conn.execute(
            "INSERT INTO cronstream.job_definitions (name, cron, handler, backoff_seconds)"
            " VALUES ('job', '*/5 * * * *', 'log', 7)"
        )
        yield conn
        conn.rollback()


def one(conn: Conn, statement: str, *values: Any) -> Any:
    row = conn.execute(statement, values).fetchone()  # type: ignore[arg-type]
    assert row is not None
    return row[0]


def call(conn: Conn, function: str, *values: Any) -> dict[str, Any]:
    marks = ", ".join(["%s"] * len(values))
    answer: dict[str, Any] = one(conn, f"SELECT cronstream.{function}({marks})", *values)
    return answer


def definition(conn: Conn, name: str = "job") -> dict[str, Any]:
    answer: dict[str, Any] = one(conn, "SELECT to_jsonb(d) FROM cronstream.job_definitions d WHERE name = %s", name)
    return answer


def test_a_run_now_is_open_until_the_leader_has_published_it(conn: Conn) -> None:
    answer = call(conn, "run_now", "default", "job")
    assert answer["accepted"] is True
    assert answer["command"] == "run-now"
    assert answer["scheduled_time"].endswith("Z")
    stored = conn.execute(
        "SELECT q.number, q.state, q.answer, q.id, o.kind, q.requested_by = session_user"
        " FROM cronstream.requests q JOIN cronstream.open_requests o USING (number)"
    ).fetchall()
    assert stored == [(answer["request_id"], "open", answer, answer["id"], "run-now", True)]


def test_a_repeated_id_gets_the_stored_answer_and_changes_nothing(conn: Conn) -> None:
    first = call(conn, "run_now", "default", "job", "mine")
    assert call(conn, "run_now", "default", "job", "mine") == first
    assert one(conn, "SELECT count(*) FROM cronstream.requests") == 1
    conn.execute("UPDATE cronstream.job_definitions SET name = 'renamed'")
    assert call(conn, "run_now", "default", "renamed", "mine") == first
    assert call(conn, "run_now", "default", "job", "mine") == first


GIVEN = {"cron": "@daily", "handler": "log"}
RANGE = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")


@pytest.mark.parametrize(
    ("function", "values"),
    [
        ("run_now", ("default", "other", "mine")),
        ("pause", ("default", "job", "mine")),
        ("resume", ("default", "job", "mine")),
        ("delete", ("default", "job", "mine")),
        ("patch", ("default", "job", Jsonb({"cron": "@daily"}), "mine")),
        ("upsert", ("default", "job", Jsonb(GIVEN), "mine")),
        ("upsert", ("default", "new", Jsonb(GIVEN), "mine")),
        ("one_shot", ("default", "new", "2030-01-01T00:00:00Z", "log", Jsonb({}), "mine")),
        ("backfill", ("default", "job", *RANGE, "mine")),
    ],
)
def test_an_id_that_was_used_for_something_else_is_refused(conn: Conn, function: str, values: tuple[Any, ...]) -> None:
    call(conn, "upsert", "default", "other", Jsonb(GIVEN))
    first = call(conn, "run_now", "default", "job", "mine")
    before = (definition(conn), definition(conn, "other"))
    with pytest.raises(psycopg.errors.UniqueViolation) as caught, conn.transaction():
        call(conn, function, *values)
    diagnosis = caught.value.diag
    assert (diagnosis.schema_name, diagnosis.column_name) == ("cronstream", "id")
    assert "id is 'mine'. It was used for run-now of default/job at " in (diagnosis.message_detail or "")
    assert "Choose another id" in (diagnosis.message_hint or "")
    assert (definition(conn), definition(conn, "other")) == before
    assert call(conn, "run_now", "default", "job", "mine") == first


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


def test_an_id_is_the_tenant_s_own(conn: Conn) -> None:
    call(conn, "upsert", "acme", "job", Jsonb({"cron": "@daily", "handler": "log"}))
    first, second = call(conn, "run_now", "default", "job", "mine"), call(conn, "run_now", "acme", "job", "mine")
    assert first["request_id"] != second["request_id"]


def test_what_is_rolled_back_was_never_asked_for(database: str) -> None:
    with psycopg.connect(database) as conn:
        call(conn, "upsert", "default", "gone", Jsonb({"cron": "@daily", "handler": "log"}), "rolled-back")
        conn.rollback()
        assert one(conn, "SELECT count(*) FROM cronstream.requests WHERE id = 'rolled-back'") == 0


def test_two_callers_of_one_id_at_once_get_one_answer(database: str) -> None:
    answers: list[dict[str, Any]] = []
    with psycopg.connect(database) as first:
        call(first, "upsert", "default", "shared", Jsonb({"cron": "@daily", "handler": "log"}), "made")
        answers.append(call(first, "run_now", "default", "shared", "both"))

        def ask() -> None:
            with psycopg.connect(database, autocommit=True) as second:
                answers.append(call(second, "run_now", "default", "shared", "both"))

        other = threading.Thread(target=ask)
        other.start()
        other.join(0.3)
        assert other.is_alive()  # waits for the first to commit
        first.commit()
        other.join(5)
    with psycopg.connect(database) as conn:
        conn.execute("DELETE FROM cronstream.job_definitions")
        conn.execute("DELETE FROM cronstream.requests")
    assert answers[0] == answers[1]


def test_an_upsert_makes_replaces_and_leaves_a_pause_alone(conn: Conn) -> None:
    given = {"every": "5 minutes", "handler": "http", "payload": {"url": "https://example.org/hook"}}
    made = call(conn, "upsert", "default", "new", Jsonb({**given, "max_attempts": 2}))
    assert (made["created"], made["changed"], definition(conn, "new")["max_attempts"]) == (True, True, 2)
    call(conn, "pause", "default", "new")
    again = call(conn, "upsert", "default", "new", Jsonb(given))
    assert (again["job_id"], again["created"], again["changed"]) == (made["job_id"], False, True)
    assert again["revision"] > made["revision"]
    stored = definition(conn, "new")
    assert (stored["max_attempts"], stored["enabled"]) == (5, False)
    same = call(conn, "upsert", "default", "new", Jsonb(given))
    assert (same["changed"], same["revision"]) == (False, again["revision"])
    call(conn, "upsert", "default", "new", Jsonb({**given, "enabled": True}))
    assert definition(conn, "new")["enabled"] is True


def test_a_patch_changes_what_it_names_and_null_clears(conn: Conn) -> None:
    answer = call(conn, "patch", "default", "job", Jsonb({"cron": None, "every": "90 seconds", "payload": {"a": 1}}))
    stored = definition(conn)
    assert answer["changed"] is True
    assert (stored["cron"], stored["every"], stored["payload"]) == (None, "00:01:30", {"a": 1})
    assert stored["backoff_seconds"] == 7
    assert call(conn, "patch", "default", "job", Jsonb({"every": "PT90S"}))["changed"] is False


def test_pause_resume_and_delete(conn: Conn) -> None:
    assert [call(conn, "pause", "default", "job")["changed"] for _ in range(2)] == [True, False]
    assert definition(conn)["enabled"] is False
    assert [call(conn, "resume", "default", "job")["changed"] for _ in range(2)] == [True, False]
    job_id = definition(conn)["job_id"]
    assert call(conn, "delete", "default", "job")["job_id"] == job_id
    assert one(conn, "SELECT count(*) FROM cronstream.job_definitions") == 0


def test_a_one_shot_is_a_job_with_one_time(conn: Conn) -> None:
    call(conn, "one_shot", "default", "later", "2030-01-01T00:00:00Z", "log", Jsonb({"message": "hi"}))
    stored = definition(conn, "later")
    assert stored["run_at"].startswith("2030-01-01T00:00:00")
    assert (stored["handler"], stored["payload"], stored["cron"]) == ("log", {"message": "hi"}, None)


def test_a_one_shot_replaces_a_single_time_and_no_recurring_job(conn: Conn) -> None:
    call(conn, "one_shot", "default", "later", "2030-01-01T00:00:00Z", "log")
    assert call(conn, "one_shot", "default", "later", "2031-01-01T00:00:00Z", "log")["created"] is False
    assert definition(conn, "later")["run_at"].startswith("2031")
    call(conn, "upsert", "default", "often", Jsonb({"every": "90 seconds", "handler": "log"}))
    for name, schedule in (("job", "cron '*/5 * * * *'"), ("often", "every 00:01:30")):
        before = definition(conn, name)
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="recurring") as caught, conn.transaction():
            call(conn, "one_shot", "default", name, "2030-01-01T00:00:00Z", "log", Jsonb({}), "mine")
        assert caught.value.diag.column_name == "name"
        assert caught.value.diag.message_detail == f"name is '{name}'. It has {schedule}."
        assert "Choose another name" in (caught.value.diag.message_hint or "")
        assert definition(conn, name) == before


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


def ended(conn: Conn, job_id: int, scheduled_time: str, request_id: int = 0, attempt: int = 5) -> None:
    """History has a run's last attempt."""
    conn.execute("SELECT cronstream.ensure_job_runs_partition(%s::date)", [scheduled_time[:10]])
    conn.execute(
        "INSERT INTO cronstream.job_runs (job_id, scheduled_time, request_id, attempt, outcome)"
        " VALUES (%s, %s, %s, %s, 'failed')",
        [job_id, scheduled_time, request_id, attempt],
    )


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


@pytest.mark.parametrize(
    ("field", "function", "values", "says"),
    [
        ("begins", "backfill", ("default", "job", "yesterday-ish", "2026-01-01Z"), "begins is no instant"),
        ("ends", "backfill", ("default", "job", "2026-01-01Z", "2026-13-01Z"), "ends is no instant"),
        ("run_at", "one_shot", ("default", "x", "soon", "log"), "run_at is no instant"),
        ("scheduled_time", "redrive", (1, "then", 0, 5), "scheduled_time is no instant"),
        ("name", "run_now", ("default", "jobb"), "there is no job default/jobb"),
        ("name", "run_now", ("default", "Job"), "Did you mean default/job?"),
        ("name", "pause", ("job", "default"), "Did you mean default/job?"),
        ("name", "run_now", ("default", None), "name is missing"),
        ("id", "run_now", ("default", "job", ""), "id is empty"),
        ("id", "run_now", ("default", "job", "x" * 201), "more than 200"),
        ("ends", "backfill", ("default", "job", "2026-01-02Z", "2026-01-01Z"), "not an instant at or after begins"),
        ("ends", "backfill", ("default", "job", "2026-01-02Z", None), "not an instant at or after begins"),
        ("ends", "backfill", ("default", "job", "2026-01-02Z", "infinity"), "is in the future"),
        ("ends", "backfill", ("default", "job", "2026-01-02Z", "2999-01-01Z"), "is in the future"),
        ("begins", "backfill", ("default", "job", "-infinity", "2026-01-01Z"), "begins must be an instant"),
        (
            "ends",
            "backfill",
            ("default", "fast", "2020-01-01Z", "2026-01-01Z"),
            "leaves more than 100000 runs of every",
        ),
        ("ends", "backfill", ("default", "job", "2024-01-01Z", "2026-01-01Z"), "runs of cron '*/5 * * * *'"),
        ("ends", "backfill", ("default", "fast", "2018-01-01Z", "2018-06-01Z"), "leaves no run: every 00:00:01 has"),
        ("crn", "upsert", ("default", "x", Jsonb({"crn": "* * * * *"})), "Did you mean cron?"),
        ("every", "upsert", ("default", "x", Jsonb({"every": "soon", "handler": "log"})), "every cannot be read"),
        ("cron", "upsert", ("default", "x", Jsonb({"cron": "61 * * * *", "handler": "log"})), "61"),
        ("handler", "upsert", ("default", "x", Jsonb({"cron": "@daily"})), "handler"),
        ("definition", "upsert", ("default", "x", Jsonb([])), "must be a JSON object"),
        ("name", "patch", ("default", "job", Jsonb({"name": "other"})), "no column of a definition"),
        ("cron", "patch", ("default", "job", Jsonb({"every": "1 hour"})), "exactly one of cron, every and run_at"),
        ("handler", "one_shot", ("default", "x", "2030-01-01Z", "nope"), "handler is not known"),
        ("job_id", "redrive", (999_999, "2026-01-01Z", 0, 5), "there is no job 999999 any more"),
        ("attempts", "redrive", (1, "2026-01-01Z", 0, 0), "number of the last attempt"),
    ],
)
def test_what_cannot_be_done_is_refused_by_field_and_leaves_nothing(
    conn: Conn, field: str, function: str, values: tuple[Any, ...], says: str
) -> None:
    conn.execute(
        "INSERT INTO cronstream.job_definitions (name, every, anchor, handler)"
        " VALUES ('fast', '1 second', '2019-01-01Z', 'log')"
    )
    with pytest.raises(psycopg.Error) as caught, conn.transaction():
        call(conn, function, *values)
    diagnosis = caught.value.diag
    assert says in f"{diagnosis.message_primary} {diagnosis.message_hint} {diagnosis.message_detail}"
    assert diagnosis.column_name == field
    assert one(conn, "SELECT count(*) FROM cronstream.requests") == 0


def test_a_command_that_is_refused_is_stored_and_answered_the_same_again(conn: Conn) -> None:
    command = {"command": "upsert", "id": "c1", "name": "x", "definition": {"cron": "61 * * * *", "handler": "log"}}
    answer = call(conn, "apply_command", Jsonb(command))
    assert answer["accepted"] is False
    assert answer["error"]["field"] == "cron"
    assert answer["error"]["hint"]
    assert answer["error"]["detail"] == "cron is '61 * * * *'. It has '61' as minute."  # whose it is, stands beside it
    assert one(conn, "SELECT state FROM cronstream.requests WHERE id = 'c1'") == "refused"
    mended = {**command, "definition": {"cron": "1 * * * *", "handler": "log"}}
    assert call(conn, "apply_command", Jsonb(mended)) == answer
    assert one(conn, "SELECT count(*) FROM cronstream.job_definitions WHERE name = 'x'") == 0


def test_a_command_of_an_id_that_was_used_for_something_else_is_refused_and_leaves_the_stored_answer(
    conn: Conn,
) -> None:
    taken, bad = {"command": "run-now", "id": "c1", "name": "job"}, {"command": "run-now", "id": "c2", "name": "none"}
    first, refused = (call(conn, "apply_command", Jsonb(command)) for command in (taken, bad))
    assert (first["accepted"], refused["accepted"]) == (True, False)
    stored = conn.execute("SELECT * FROM cronstream.requests ORDER BY number").fetchall()
    for command, was in (
        ({**taken, "command": "pause"}, "for run-now of default/job at "),
        ({**taken, "name": "other"}, "for run-now of default/job at "),
        ({**bad, "name": "job"}, ", which was refused: there is no job default/none."),
    ):
        answer = call(conn, "apply_command", Jsonb(command))
        assert {**command, "tenant": "default", "accepted": False} == {k: v for k, v in answer.items() if k != "error"}
        assert (answer["error"]["code"], answer["error"]["field"]) == ("conflict", "id")
        assert was in answer["error"]["detail"]
        assert "Choose another id" in answer["error"]["hint"]
        assert call(conn, "apply_command", Jsonb(command)) == answer
    assert definition(conn)["enabled"] is True
    assert conn.execute("SELECT * FROM cronstream.requests ORDER BY number").fetchall() == stored
    assert call(conn, "apply_command", Jsonb(taken)) == first
    assert call(conn, "apply_command", Jsonb(bad)) == refused


def test_a_command_that_means_nothing_does_not_touch_the_answer_of_its_id(conn: Conn) -> None:
    first = call(conn, "run_now", "default", "job", "mine")
    error = {"code": "invalid", "message": "command: is none that is known", "field": "command", "hint": "Known: ..."}
    answer = call(conn, "refuse_command", "unknown", "default", "job", "mine", Jsonb(error))
    assert (answer["accepted"], answer["error"]) == (False, error)
    assert call(conn, "run_now", "default", "job", "mine") == first
    refused = call(conn, "refuse_command", "unknown", "default", None, "other", Jsonb(error))
    assert call(conn, "refuse_command", "unknown", "default", None, "other", Jsonb({})) == refused


@pytest.mark.parametrize(
    "command",
    [
        {"command": "run-now"},
        {"command": "pause"},
        {"command": "resume"},
        {"command": "delete"},
        {"command": "backfill", "begins": "2026-01-01T00:00:00Z", "ends": "2026-01-02T00:00:00Z"},
        {"command": "upsert", "definition": {"every": "1 hour", "handler": "log"}},
        {"command": "patch", "changes": {"timezone": "Europe/Berlin"}},
        {"command": "one-shot", "run_at": "2030-01-01T00:00:00Z", "handler": "log", "payload": {"a": [1]}},
    ],
    ids=lambda command: command["command"],
)
def test_every_command_is_accepted_and_repeats(conn: Conn, command: dict[str, Any]) -> None:
    name = "once" if command["command"] == "one-shot" else "job"
    whole = Jsonb({**command, "id": "c2", "tenant": "default", "name": name})
    answer = call(conn, "apply_command", whole)
    assert answer["accepted"] is True
    assert (answer["id"], answer["command"], answer["name"]) == ("c2", command["command"], name)
    assert call(conn, "apply_command", whole) == answer


def test_a_role_that_may_define_jobs_may_use_the_functions_and_others_may_not(conn: Conn) -> None:
    with conn.transaction(force_rollback=True):
        conn.execute("SELECT cronstream.grant_definitions('pg_read_all_stats')")
        conn.execute("SET LOCAL ROLE pg_read_all_stats")
        call(conn, "run_now", "default", "job")
        call(conn, "upsert", "default", "x", Jsonb({"cron": "@daily", "handler": "log"}))
        call(conn, "upsert", "default", "x", Jsonb({"cron": "@hourly", "handler": "log"}))
        call(conn, "patch", "default", "x", Jsonb({"cron": "@weekly"}))
        call(conn, "delete", "default", "x")
        job_id = definition(conn)["job_id"]
        again = call(conn, "run_now", "default", "job")
        call(conn, "redrive", job_id, again["scheduled_time"], again["request_id"], 5)
        with pytest.raises(psycopg.errors.InsufficientPrivilege), conn.transaction():
            conn.execute("UPDATE cronstream.requests SET answer = '{}'")
    with conn.transaction(force_rollback=True):
        conn.execute("GRANT USAGE ON SCHEMA cronstream TO pg_read_all_stats")
        conn.execute("GRANT SELECT ON cronstream.job_definitions TO pg_read_all_stats")
        conn.execute("SET LOCAL ROLE pg_read_all_stats")
        with pytest.raises(psycopg.errors.InsufficientPrivilege), conn.transaction():
            call(conn, "run_now", "default", "job")


def test_ended_requests_are_forgotten_when_they_are_old(conn: Conn) -> None:
    call(conn, "pause", "default", "job", "old")
    call(conn, "run_now", "default", "job", "open")
    assert one(conn, "SELECT cronstream.forget_requests('1 day')") == 0
    conn.execute("UPDATE cronstream.requests SET ended_at = now() - interval '2 days' WHERE id = 'old'")
    assert one(conn, "SELECT cronstream.forget_requests('1 day')") == 1
    assert one(conn, "SELECT array_agg(id) FROM cronstream.requests") == ["open"]


@pytest.mark.parametrize("kind", ["run-now", "backfill", "redrive", "pause"])
def test_an_open_request_has_what_the_leader_goes_by_whoever_wrote_it(conn: Conn, kind: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        conn.execute(
            "INSERT INTO cronstream.requests (kind, tenant, name, id, job_id, state)"
            " VALUES (%s, 'default', 'job', 'x', 1, 'open')",
            [kind],
        )
