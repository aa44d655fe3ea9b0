"""What Postgres accepts as a definition, what it refuses, and how it says so."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from cronstream.schedule import ScheduleError, schedule_of
from tests.support.definitions import BAD, GOOD, SELECT, URL

Conn = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def conn(database: str) -> Iterator[Conn]:
    """A transaction that is rolled back."""
    with psycopg.connect(database) as conn:
        yield conn
        conn.rollback()


def insert(conn: Conn, **columns: Any) -> int:
    values: dict[str, Any] = {"name": "job", "handler": "log", **columns}
    if not {"cron", "every", "run_at"} & values.keys():
        values["cron"] = "*/5 * * * *"
    marks = ", ".join("%s::interval" if name == "every" else "%s" for name in values)
    row = conn.execute(
        f"INSERT INTO cronstream.job_definitions ({', '.join(values)}) VALUES ({marks}) RETURNING job_id",  # type: ignore[arg-type]
        list(values.values()),
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("columns", GOOD, ids=str)
def test_a_good_definition_is_accepted(conn: Conn, columns: dict[str, Any]) -> None:
    insert(conn, **columns)


# column named in the error, what was written, what the message says


@pytest.mark.parametrize(("column", "columns", "says"), BAD, ids=str)
def test_a_bad_definition_is_refused_with_column_detail_and_hint(
    conn: Conn, column: str, columns: dict[str, Any], says: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=says) as refusal:
        insert(conn, **columns)
    diag = refusal.value.diag
    assert diag.column_name == column
    assert (diag.schema_name, diag.table_name) == ("cronstream", "job_definitions")
    assert diag.message_detail is not None
    assert diag.message_detail.startswith((f"{column} is ", f"{column}.", "None of them", "Set are"))
    assert len(diag.message_detail) < 600
    assert diag.message_hint
    assert not {"SELECT", "statement"} & set((diag.context or "").split()), (
        "the context names functions and quotes no statement"
    )


@pytest.mark.parametrize(("column", "columns", "says"), BAD, ids=str)
def test_an_update_is_checked_as_an_insert_is(conn: Conn, column: str, columns: dict[str, Any], says: str) -> None:
    job_id = insert(conn, every="1 hour") if "every" in columns else insert(conn)
    values = {"cron": None, "every": None, "run_at": None, **columns}
    if not any(values[name] for name in ("cron", "every", "run_at")) and column != "cron":
        values["cron"] = "* * * * *"
    sets = ", ".join(f"{name} = %s::interval" if name == "every" else f"{name} = %s" for name in values)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match=says) as refusal:
        conn.execute(
            f"UPDATE cronstream.job_definitions SET {sets} WHERE job_id = %s",  # type: ignore[arg-type]
            [*values.values(), job_id],
        )
    assert refusal.value.diag.column_name == column


@pytest.mark.parametrize(
    "column", ["name", "tenant", "handler", "timezone", "enabled", "misfire_grace", "jitter", "max_attempts"]
)
def test_null_is_refused_where_a_value_is_needed(conn: Conn, column: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refusal:
        insert(conn, **{column: None})
    assert refusal.value.diag.column_name == column
    assert (refusal.value.diag.message_detail or "").startswith(f"{column} is NULL. The job is ")


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ("cron = CASE name WHEN 'job-7' THEN '99 * * * *' ELSE '@hourly' END", "It has '99' as minute. "),
        ("payload = CASE name WHEN 'job-7' THEN '{\"url\": 7}' ELSE payload END, handler = 'http'", ""),
        ("revision = CASE name WHEN 'job-7' THEN 7 ELSE revision END", "revision is '7'. "),
    ],
)
def test_a_refusal_says_which_row_of_a_statement_it_is_about(conn: Conn, edit: str, says: str) -> None:
    conn.execute(
        "INSERT INTO cronstream.job_definitions (tenant, name, cron, handler, payload)"
        """ SELECT 'acme', 'job-' || n, '@daily', 'log', '{"url": "http://a"}' FROM generate_series(1, 20) AS n"""
    )
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refusal:
        conn.execute(f"UPDATE cronstream.job_definitions SET {edit}")
    assert (refusal.value.diag.message_detail or "").endswith(f"{says}The job is acme/job-7.")
    assert refusal.value.diag.message_hint
    assert refusal.value.diag.message_hint


def test_a_row_without_name_or_handler_says_which_is_missing(conn: Conn) -> None:
    for column, other in (("name", "handler"), ("handler", "name")):
        with pytest.raises(psycopg.errors.InvalidParameterValue, match=f"{column} is missing"), conn.transaction():
            conn.execute(
                f"INSERT INTO cronstream.job_definitions ({other}, cron) VALUES ('log', '@daily')"  # type: ignore[arg-type]
            )


@pytest.mark.parametrize(
    ("handler", "key", "meant"),
    [
        ("http", "urll", "url"),
        ("kafka", "topik", "topic"),
        ("sql", "statment", "statement"),
        ("python", "entrypoint", "entry_point"),
        ("command", "argvs", "argv"),
    ],
)
def test_a_misspelt_key_of_a_payload_is_answered_with_the_known_one(
    conn: Conn, handler: str, key: str, meant: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refusal:
        insert(conn, handler=handler, payload=Jsonb({key: "x"}))
    assert f"Did you mean {meant}?" in str(refusal.value.diag.message_hint)


def test_a_zone_s_misspelling_is_answered_with_the_name(conn: Conn) -> None:
    for wrong, right in (("europe/berlin", "Europe/Berlin"), ("New York", "America/New_York"), (" UTC", "UTC")):
        with pytest.raises(psycopg.errors.InvalidParameterValue) as refusal, conn.transaction():
            insert(conn, timezone=wrong)
        assert f"Did you mean {right}?" in str(refusal.value.diag.message_hint)


def test_a_name_is_unique_per_tenant(conn: Conn) -> None:
    insert(conn, name="a")
    insert(conn, name="a", tenant="other")
    with pytest.raises(psycopg.errors.UniqueViolation, match="call_cronstream_upsert") as refusal:
        insert(conn, name="a")
    assert refusal.value.diag.message_detail == "Key (tenant, name)=(default, a) already exists."


def test_sql_null_and_json_null_are_kept_apart(conn: Conn) -> None:
    for payload, is_null, text in ((None, True, None), (Jsonb(None), False, "null")):
        job_id = insert(conn, payload=payload, name=str(text))
        row = conn.execute(
            "SELECT payload IS NULL, payload::text FROM cronstream.job_definitions WHERE job_id = %s", (job_id,)
        ).fetchone()
        assert row == (is_null, text)


def test_truncate_is_refused(conn: Conn) -> None:
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot be truncated"):
        conn.execute("TRUNCATE cronstream.job_definitions")


def test_a_job_id_is_neither_chosen_nor_changed(conn: Conn) -> None:
    job_id = insert(conn)
    for statement in (
        "UPDATE cronstream.job_definitions SET job_id = DEFAULT",
        f"INSERT INTO cronstream.job_definitions (job_id, name, cron, handler) OVERRIDING SYSTEM VALUE"
        f" VALUES ({job_id + 100}, 'b', '@daily', 'log')",
    ):
        with pytest.raises(psycopg.errors.InvalidParameterValue) as refusal, conn.transaction():
            conn.execute(statement)  # type: ignore[arg-type]
        assert refusal.value.diag.column_name == "job_id"


def test_an_id_is_not_chosen_in_a_session_that_was_given_none_nor_its_last_one_again(database: str) -> None:
    chosen = (
        "INSERT INTO cronstream.job_definitions (job_id, name, cron, handler) OVERRIDING SYSTEM VALUE"
        " VALUES (%s, 'again', '@daily', 'log')"
    )
    with psycopg.connect(database) as conn:
        for job_id in (7, None):
            if job_id is None:
                job_id = insert(conn)
                conn.execute("DELETE FROM cronstream.job_definitions")
                conn.execute("INSERT INTO cronstream.job_definitions (name) SELECT 'none' WHERE false")
            with pytest.raises(psycopg.errors.InvalidParameterValue) as refusal, conn.transaction():
                conn.execute(chosen, [job_id])
            assert refusal.value.diag.message_primary == "job_id cannot be chosen"
            assert refusal.value.diag.message_detail == f"job_id is '{job_id}'. The job is default/again."
            assert refusal.value.diag.column_name == "job_id"
        insert(conn)
        conn.rollback()


def test_revision_and_times_are_the_trigger_s_own(conn: Conn) -> None:
    job_id = insert(conn, created_at="2000-01-01Z", updated_at="2000-01-01Z")
    query = (
        "SELECT revision, created_at > '2001-01-01', updated_at > '2001-01-01'"
        " FROM cronstream.job_definitions WHERE job_id = %s"
    )
    first = conn.execute(query, (job_id,)).fetchone()
    assert first is not None
    assert first[0] > 0
    assert first[1:] == (True, True)
    conn.execute("UPDATE cronstream.job_definitions SET created_at = '2000-01-01Z', spread_seconds = 1")
    second = conn.execute(query, (job_id,)).fetchone()
    assert second is not None
    assert second[0] > first[0]
    assert second[1:] == (True, True)


def test_a_revision_is_neither_chosen_nor_changed(conn: Conn) -> None:
    insert(conn)
    for statement in (
        "UPDATE cronstream.job_definitions SET revision = 77",
        "INSERT INTO cronstream.job_definitions (revision, name, cron, handler) VALUES (7, 'b', '@daily', 'log')",
    ):
        refusal = pytest.raises(psycopg.errors.InvalidParameterValue, match="revision is set by the database")
        with refusal, conn.transaction():
            conn.execute(statement)  # type: ignore[arg-type]
    conn.execute("UPDATE cronstream.job_definitions SET revision = revision, spread_seconds = 1")


@pytest.mark.parametrize(
    ("columns", "near"),
    [
        ({"handler": "http", "payload": Jsonb({**URL, "metod": "PUT"})}, "Did you mean method? Known: url, method,"),
        ({"handler": "http", "payload": Jsonb({**URL, "header": {}})}, "Did you mean headers?"),
        ({"handler": "http", "payload": Jsonb({**URL, "method": "get"})}, "Did you mean GET?"),
        ({"handler": "http", "payload": Jsonb({**URL, "retries": 3})}, "Known: url, method, headers, body, timeout"),
        (
            {"handler": "command", "payload": Jsonb({"argv": ["x"], "limits": {"memory": 5}})},
            "Did you mean memory_mib?",
        ),
        (
            {"handler": "sql", "payload": Jsonb({**SELECT, "statement": "SELECT %(idempotencykey)s"})},
            "Did you mean idempotency_key? Put it into parameters;",
        ),
        ({"handler": "sqll", "payload": Jsonb(SELECT)}, "One of http, command, kafka, sql, python, log."),
        ({"handler": "command", "payload": Jsonb({"argv": ["x"], "environment": {}})}, "Did you mean env?"),
        ({"misfire_policy": "fire_now"}, "Did you mean FIRE_NOW? Left out, it is FIRE_NOW."),
        ({"max_attempts": 0}, "Left out, it is 5."),
    ],
    ids=str,
)
def test_what_was_probably_meant_is_named(conn: Conn, columns: dict[str, Any], near: str) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refusal:
        insert(conn, **columns)
    hint = str(refusal.value.diag.message_hint)
    assert hint.startswith(near)
    assert hint.count("Did you mean") == near.count("Did you mean")


def test_an_ended_job_can_still_be_edited(conn: Conn) -> None:
    insert(conn, every="1 hour")
    conn.execute("UPDATE cronstream.job_definitions SET ends_at = now() - interval '1 second'")
    conn.execute("UPDATE cronstream.job_definitions SET payload = '{}', spread_seconds = 3")


def test_an_interval_that_ends_before_its_first_time_is_refused(conn: Conn) -> None:
    """It counts from its commit, which is none of its times unless the spread moves it."""
    row = conn.execute("SELECT now()").fetchone()
    assert row is not None
    now = row[0]
    insert(conn, name="fires", every="10 seconds", ends_at=now + timedelta(seconds=15))
    insert(conn, name="spread", every="10 seconds", ends_at=now + timedelta(seconds=9), spread_seconds=3)
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="ends_at is before the first time") as refused:
        insert(conn, name="never", every="10 seconds", ends_at=now + timedelta(seconds=5))
    assert refused.value.diag.message_hint == "As it is, the job would never fire."


def test_bounds_are_refused_only_where_python_finds_no_time_in_them(conn: Conn) -> None:
    chance = Random(12)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    crons = ("@daily", "30 2 * * *", "*/20 9-17 * * 1-5", "0 0 29 2 *", "15 30 4 L * *", "H H * * *", "* * * * * *")
    refused = 0
    for number in range(400):
        cron, zone = chance.choice(crons), chance.choice(("UTC", "UTC", "America/New_York", "Pacific/Kiritimati"))
        starts = begin + timedelta(seconds=chance.randrange(400 * 86_400), microseconds=chance.choice((0, 1, 999_999)))
        ends = starts + timedelta(seconds=chance.choice((0, 1, 3_600, 86_399, 86_400, 10 * 86_400, 40 * 86_400)))
        spread = chance.choice((0, 0, 7_200))
        name = f"job {number}"
        us = [round((at - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1)) for at in (starts, ends)]
        first = schedule_of(
            cron=cron, timezone=zone, spread_seconds=spread, tenant="default", name=name, starts_at_us=us[0]
        )
        following = first.next_after(us[0] - 1)
        held = following is not None and following <= us[1]
        try:
            with conn.transaction():
                insert(conn, name=name, cron=cron, timezone=zone, starts_at=starts, ends_at=ends, spread_seconds=spread)
            assert held or zone != "UTC", (cron, starts, ends, spread)
        except psycopg.errors.InvalidParameterValue:
            refused += 1
            assert not held, (cron, zone, starts, ends, spread)
    assert refused > 50


def test_the_last_instants_are_those_of_the_leader(conn: Conn) -> None:
    """What SQL accepts near the end of the calendar the leader plans, and what it refuses has no time there either."""
    end, day = datetime(9999, 1, 1, tzinfo=UTC), timedelta(days=1)
    seconds = (-86_400, -90, -60, -1e-6, 0, 1e-6, 30, 362 * 86_400)
    instants = [end + timedelta(seconds=at) for at in seconds]
    sources: list[dict[str, Any]] = [{"cron": cron} for cron in ("* * * * * *", "@daily", "30 23 31 12 *")]
    sources += [
        {"every": "1 minute"},
        *({"every": every, "anchor": at} for every in ("1 minute", "7 days") for at in instants),
    ]
    sources += [
        {"every": "1 day", "anchor": datetime(2026, 1, 1, 12, tzinfo=UTC)},
        *({"run_at": at} for at in instants),
    ]
    refused = 0
    for source, starts, ends in product(sources, [None, *instants], [None, end, end + 362 * day]):
        for spread in (0, 86_400):
            given = {**source, "starts_at": starts, "ends_at": ends, "spread_seconds": spread}
            columns = {name: value for name, value in given.items() if value is not None}
            if starts is not None and ends is not None and starts > ends:
                continue
            problem = None
            try:
                with conn.transaction():
                    insert(conn, **columns)
            except psycopg.errors.InvalidParameterValue as error:
                problem = error.diag.column_name
            # without an anchor only the leader knows the times, and SQL refuses what is sure
            unsure = "every" in source and "anchor" not in source and problem is None
            assert (problem is None) is _fires(columns) or unsure, (columns, problem)
            assert problem is None or problem in columns
            conn.execute("DELETE FROM cronstream.job_definitions")
            refused += problem is not None
    assert refused > 50


def _fires(columns: dict[str, Any]) -> bool:
    """The leader plans a time of such a job."""
    every = {"1 minute": 60, "1 day": 86_400, "7 days": 7 * 86_400}
    read = {
        f"{name}_us": (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        for name, value in columns.items()
        if isinstance(value, datetime)
    }
    if "every" in columns:
        read = {"anchor_us": 0, **read, "every_us": every[columns["every"]] * 1_000_000}
    try:
        schedule = schedule_of(
            cron=columns.get("cron"), spread_seconds=columns["spread_seconds"], tenant="default", name="job", **read
        )
    except ScheduleError:
        return False
    return schedule.next_after(0) is not None


def test_a_least_privileged_user_defines_jobs_and_sees_nothing_else(database: str) -> None:
    """Run as a role without LOGIN: the owner may not make one, so the grants are read instead."""
    with psycopg.connect(database) as conn:
        conn.execute("SELECT cronstream.grant_definitions('pg_read_all_stats')")
        granted = conn.execute(
            "SELECT privilege_type, count(*) FROM information_schema.column_privileges"
            " WHERE grantee = 'pg_read_all_stats' AND table_name = 'job_definitions'"
            " AND column_name IN ('job_id', 'revision', 'created_at', 'updated_at', 'name') GROUP BY 1 ORDER BY 1"
        ).fetchall()
        assert granted == [("INSERT", 1), ("SELECT", 5), ("UPDATE", 1)]
        others = conn.execute(
            "SELECT table_name FROM information_schema.table_privileges WHERE grantee = 'pg_read_all_stats'"
            " AND table_schema = 'cronstream' AND table_name NOT IN ('job_definitions', 'zones', 'requests')"
        ).fetchall()
        assert others == []
        conn.rollback()


def test_strings_as_the_user_s_session_reads_them_change_nothing(database: str) -> None:
    with psycopg.connect(database) as conn:
        conn.execute("SET standard_conforming_strings = off; SET escape_string_warning = off")
        insert(conn, cron="*/5 H(1-5)/2 * * FRIL", name="hashed")
        insert(conn, cron="0 9 LW * ?", timezone="Europe/Berlin", name="last")
        insert(conn, handler="http", payload=Jsonb({**URL, "headers": {"a": "b"}}), name="http")
        for column, columns, says in BAD:
            with pytest.raises(psycopg.errors.InvalidParameterValue, match=says) as refusal, conn.transaction():
                insert(conn, **columns)
            assert refusal.value.diag.column_name == column
        assert conn.execute("SHOW standard_conforming_strings").fetchone() == ("off",)
        conn.rollback()


def test_a_search_path_of_the_user_s_own_changes_nothing(conn: Conn) -> None:
    conn.execute("CREATE SCHEMA trap")
    conn.execute("CREATE FUNCTION trap.yes(text, text) RETURNS boolean LANGUAGE sql RETURN true")
    conn.execute("CREATE OPERATOR trap.~ (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.yes)")
    conn.execute("SET search_path = trap, pg_catalog")
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        insert(conn, cron="nonsense")
