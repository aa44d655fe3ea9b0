"""Requests in SQL: what each function does, answers and refuses, and that an id is answered once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.requests import Conn, call, definition, one, transaction_with_a_job


@pytest.fixture
def conn(database: str) -> Iterator[Conn]:
    """A transaction that is rolled back, with the job default/job."""
    with transaction_with_a_job(database) as conn:
        yield conn


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


@pytest.mark.parametrize(
    "inside",
    [
        "cronstream.begin_request('backfill', 'default', 'job', 'x')",
        "cronstream.finish_request(1, 'open', 1, '{}', cursor => '0001-01-03', ends => '9999-01-01')",
        "cronstream.put_definition('backfill', 'default', 'new', '{\"cron\": \"@daily\", \"handler\": \"log\"}', 'x')",
        "cronstream.set_enabled('backfill', 'default', 'job', false, 'x')",
    ],
)
def test_requests_are_made_by_what_checks_them_alone(conn: Conn, inside: str) -> None:
    """A role that may define jobs gets to no part of the functions that it may call."""
    conn.execute("SELECT cronstream.grant_definitions('pg_read_all_stats')")
    conn.execute("SET LOCAL ROLE pg_read_all_stats")
    with pytest.raises(psycopg.errors.InsufficientPrivilege), conn.transaction():
        conn.execute(f"SELECT {inside}")  # type: ignore[arg-type]
    assert one(conn, "SELECT count(*) FROM cronstream.requests") == 0


def test_a_role_that_may_define_jobs_may_send_commands(conn: Conn) -> None:
    conn.execute("SELECT cronstream.grant_definitions('pg_read_all_stats')")
    conn.execute("SET LOCAL ROLE pg_read_all_stats")
    command = {"command": "upsert", "id": "c1", "name": "x", "definition": {"cron": "@daily", "handler": "log"}}
    assert call(conn, "apply_command", Jsonb(command))["accepted"] is True
    bad = {**command, "id": "c2", "definition": {"cron": "61 * * * *", "handler": "log"}}
    assert call(conn, "apply_command", Jsonb(bad))["error"]["field"] == "cron"
    error = {"code": "invalid", "message": "no", "field": "name", "hint": "another"}
    before = one(conn, "SELECT count(*) FROM cronstream.requests")
    for values in (("a\x1b[2J", "job"), ("x" * 10_000, "job"), ("a", "j\u202eob"), ("a", "x" * 256)):
        answer = call(conn, "refuse_command", "unknown", *values, "c3", Jsonb(error))
        assert (answer["accepted"], answer["error"]) == (False, error)
    assert one(conn, "SELECT count(*) FROM cronstream.requests") == before, "nothing is stored under no name"


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
