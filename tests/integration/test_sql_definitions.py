"""What Postgres accepts as a definition, what it refuses, and how it says so."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from cronstream.schedule import schedule_of
from sql.migrate import migrate
from tests.support.endpoints import Endpoints

Conn = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(scope="module")
def database(stack: Endpoints) -> Iterator[str]:
    with stack.database() as dsn:
        with psycopg.connect(dsn, autocommit=True) as conn:
            migrate(conn)
        yield dsn


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


URL = {"url": "https://example.org/hook"}
LIMITS = {"cpu_seconds": 1, "memory_mib": 64, "file_mib": 1, "open_files": 32}
SELECT = {"connection": "c", "statement": "SELECT 1"}
GOOD: list[dict[str, Any]] = [
    {},
    {"cron": "0 9 * * MON-FRI"},
    {"cron": "*/10 0-5,7 1 JAN ?", "timezone": "America/Argentina/Buenos_Aires"},
    {"cron": "30 0 0 L * *"},
    {"cron": "H H(0-7) * * 5#2"},
    {"cron": "@daily"},
    {"cron": "@HOURLY"},
    {"cron": "0\t0  *\t* *"},
    {"every": "1 second"},
    {"every": "PT90S"},
    {"every": "36500 days"},
    {"every": "1 day 00:00:00.000001", "anchor": "2020-01-01T00:00:00Z"},
    {"run_at": "2030-01-01T00:00:00Z"},
    {"run_at": "1970-01-01T00:00:00Z"},
    {"timezone": "Asia/Kathmandu"},
    {"timezone": "Etc/GMT+5"},
    {"name": "x" * 255, "tenant": "ü" * 255},
    {"name": "quoted 'name' — with \" signs"},
    {"handler": "http", "payload": Jsonb(URL)},
    {"handler": "http", "payload": Jsonb({"url": "HTTP://[::1]:80/x?y=z#f", "method": "PUT", "headers": {"a": "b"}})},
    {"handler": "http", "payload": Jsonb({"url": "https://user:pass@example.org:8443?q", "body": [1, None]})},
    {"handler": "command", "payload": Jsonb({"argv": ["/bin/true", "", "ü"]})},
    {"handler": "command", "payload": Jsonb({"argv": ["cat"], "env": {"LEVEL": "9"}, "stdin": "5"})},
    {"handler": "http", "payload": Jsonb({**URL, "timeout_seconds": 0.5, "retry_on": [404, 999]})},
    {"handler": "http", "payload": Jsonb({**URL, "headers": {"X-!#$%&'*+.^_`|~0z": "ü \t 日本", "x": ""}})},
    {"handler": "command", "payload": Jsonb({"argv": ["ls"], "cwd": "/tmp", "limits": {}, "final_exit_codes": []})},
    {"handler": "command", "payload": Jsonb({"argv": ["ls"], "limits": LIMITS, "final_exit_codes": [1, 255]})},
    {"handler": "kafka", "payload": Jsonb({"topic": "a._-Z9"})},
    {"handler": "kafka", "payload": Jsonb({"topic": "t", "value": None, "key": "", "headers": {"a": "b"}})},
    {"handler": "sql", "payload": Jsonb({"connection": "c", "statement": "SELECT %(tenant)s LIKE '5%'"})},
    {"handler": "sql", "payload": Jsonb({"connection": "c", "statement": "CALL f(%(a)s)", "parameters": {"a": [1]}})},
    {"handler": "python", "payload": Jsonb({"entry_point": "run:main"})},
    {"handler": "python", "payload": Jsonb({"entry_point": "a._b.c1:d_2", "arguments": {"x": 1}, "limits": LIMITS})},
    {"payload": Jsonb({"any": {"key": 5}})},
    {"run_at": "2026-01-01Z", "starts_at": "2026-01-01Z", "ends_at": "2026-01-01T00:00:01Z"},
    {"cron": "@daily", "starts_at": "2026-01-01T01:00Z", "ends_at": "2026-01-02T00:00Z"},
    {"every": "1 hour", "anchor": "2026-01-01Z", "starts_at": "2026-01-01T00:00:01Z", "ends_at": "2026-01-01T01:00Z"},
    {"every": "1 hour", "ends_at": "9999-01-01Z"},
    {"payload": None},
    {"payload": Jsonb(None)},
    {"payload": Jsonb({"x": "y" * 65_000})},
    {"starts_at": "2026-01-01T00:00:00Z", "ends_at": "2026-01-01T00:00:00.000001Z"},
    {"misfire_policy": "SKIP", "misfire_grace": "0"},
    {"misfire_policy": "CATCH_UP", "catch_up_limit": 1},
    {"overlap_policy": "queue", "dst_gap": "shift", "dst_overlap": "both", "jitter": "none"},
    {"spread_seconds": 86400, "max_attempts": 1, "backoff_seconds": 0, "backoff_factor": 1},
    {"max_backoff": "24 hours", "timeout_seconds": 0.25},
    {"enabled": False},
]


@pytest.mark.parametrize("columns", GOOD, ids=str)
def test_a_good_definition_is_accepted(conn: Conn, columns: dict[str, Any]) -> None:
    insert(conn, **columns)


# column named in the error, what was written, what the message says
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("cron", {"cron": None}, "exactly one of cron, every and run_at must be set"),
    ("cron", {"cron": "* * * * *", "every": "1 minute"}, "exactly one of cron, every and run_at must be set"),
    ("every", {"every": "1 minute", "run_at": "2030-01-01Z"}, "exactly one of cron, every and run_at must be set"),
    (
        "cron",
        {"cron": "* * * * *", "every": "1 minute", "run_at": "2030-01-01Z"},
        "exactly one of cron, every and run_at must be set",
    ),
    ("cron", {"cron": ""}, "not a cron expression"),
    ("cron", {"cron": "* * * *"}, "not a cron expression"),
    ("cron", {"cron": "* * * * * * *"}, "not a cron expression"),
    ("cron", {"cron": "@reboot"}, "not a cron expression"),
    ("cron", {"cron": "* * * *\n*"}, "not a cron expression"),
    ("cron", {"cron": "１５ * * * *"}, "not a cron expression"),
    ("cron", {"cron": "0\u00a00 * * *"}, "not a cron expression"),
    ("cron", {"cron": "0 " * 2000 + "0 0 0 0"}, "not a cron expression"),
    ("cron", {"cron": "0 0 30 2 *"}, "cron never fires"),
    ("every", {"every": "0.999999 seconds"}, "shorter than one second"),
    ("every", {"every": "-5 minutes"}, "shorter than one second"),
    ("every", {"every": "1 month"}, "months or years"),
    ("every", {"every": "2 years"}, "months or years"),
    ("every", {"every": "1 month -1 days"}, "months or years"),
    ("every", {"every": "36500 days 1 second"}, "longer than"),
    ("run_at", {"run_at": "infinity"}, "out of range"),
    ("run_at", {"run_at": "-infinity"}, "out of range"),
    ("run_at", {"run_at": "0044-03-15 BC"}, "out of range"),
    ("run_at", {"run_at": "20000-01-01"}, "out of range"),
    ("anchor", {"anchor": "2026-01-01Z"}, "belongs to every"),
    ("anchor", {"every": "1 minute", "anchor": "infinity"}, "out of range"),
    ("starts_at", {"starts_at": "-infinity"}, "out of range"),
    ("ends_at", {"ends_at": "infinity"}, "out of range"),
    ("ends_at", {"starts_at": "2026-01-01Z", "ends_at": "2026-01-01Z"}, "not after starts_at"),
    ("run_at", {"run_at": "2026-01-01Z", "starts_at": "2026-01-01T00:00:01Z"}, "is not within starts_at and ends_at"),
    ("run_at", {"run_at": "2026-01-01Z", "ends_at": "2025-01-01Z"}, "is not within starts_at and ends_at"),
    ("ends_at", {"cron": "@daily", "starts_at": "2026-01-01T01:00Z", "ends_at": "2026-01-01T02:00Z"}, "leaves no time"),
    ("ends_at", {"every": "1 hour", "anchor": "2026-01-01Z", "ends_at": "2025-12-31Z"}, "is before the first time"),
    (
        "ends_at",
        {
            "every": "1 hour",
            "anchor": "2026-01-01Z",
            "starts_at": "2026-01-02T00:00:01Z",
            "ends_at": "2026-01-02T00:59Z",
        },
        "leaves no time for every",
    ),
    ("ends_at", {"every": "2 hours", "ends_at": "2020-01-01Z"}, "is over"),
    ("timezone", {"timezone": "Mars/Olympus"}, "not an IANA time zone"),
    ("timezone", {"timezone": "europe/berlin"}, "not an IANA time zone"),
    ("timezone", {"timezone": "posix/Europe/Berlin"}, "not an IANA time zone"),
    ("timezone", {"timezone": "UTC+2"}, "not an IANA time zone"),
    ("timezone", {"timezone": ""}, "not an IANA time zone"),
    ("name", {"name": ""}, "is empty"),
    ("name", {"name": "   "}, "is empty"),
    ("name", {"name": "\u3000\u00a0"}, "is empty"),
    ("name", {"name": "x" * 256}, "has 256 characters, more than 255"),
    ("name", {"name": "two\nlines"}, "cannot be seen"),
    ("name", {"name": "bell\u0007"}, "cannot be seen"),
    ("name", {"name": "c1\u0085"}, "cannot be seen"),
    ("name", {"name": "turned\u202eround"}, "cannot be seen"),
    ("name", {"name": "zero\u200bwidth"}, "cannot be seen"),
    ("name", {"name": "none\uffff"}, "cannot be seen"),
    ("tenant", {"tenant": ""}, "is empty"),
    ("tenant", {"tenant": "t\u007f"}, "cannot be seen"),
    ("tenant", {"tenant": "\ufeffacme"}, "cannot be seen"),
    ("handler", {"handler": "shell"}, "is not known"),
    ("handler", {"handler": "HTTP"}, "is not known"),
    ("payload", {"handler": "http"}, "absolute http or https url"),
    ("payload", {"handler": "http", "payload": None}, "absolute http or https url"),
    ("payload", {"handler": "http", "payload": Jsonb(None)}, "absolute http or https url"),
    ("payload", {"handler": "http", "payload": Jsonb([URL])}, "absolute http or https url"),
    ("payload", {"handler": "http", "payload": Jsonb({"url": 7})}, "absolute http or https url"),
    ("payload", {"handler": "http", "payload": Jsonb({"url": "/relative"})}, "absolute http or https url"),
    ("payload", {"handler": "http", "payload": Jsonb({"url": "ftp://example.org"})}, "absolute http or https url"),
    ("payload", {"handler": "http", "payload": Jsonb({"url": "http://"})}, "absolute http or https url"),
    ("payload", {"handler": "http", "payload": Jsonb({"url": "http://a b/"})}, "absolute http or https url"),
    (
        "payload",
        {"handler": "http", "payload": Jsonb({**URL, "method": "STEAL"})},
        "payload.method is an unknown method",
    ),
    ("payload", {"handler": "http", "payload": Jsonb({**URL, "method": None})}, "payload.method is an unknown method"),
    (
        "payload",
        {"handler": "http", "payload": Jsonb({**URL, "headers": ["a"]})},
        "payload.headers must be an object of strings",
    ),
    (
        "payload",
        {"handler": "http", "payload": Jsonb({**URL, "headers": {"a": 1}})},
        "payload.headers must be an object of strings",
    ),
    ("payload", {"handler": "http", "payload": Jsonb({"url": "http://127.0.0.1:/"})}, "absolute http or https url"),
    (
        "payload",
        {"handler": "http", "payload": Jsonb({"url": "http://127.0.0.1:65536/"})},
        "absolute http or https url",
    ),
    ("payload", {"handler": "http", "payload": Jsonb({"url": "http://:80/"})}, "absolute http or https url"),
    ("payload", {"handler": "http", "payload": Jsonb({**URL, "metod": "PUT"})}, 'does not know: "metod"'),
    ("payload", {"handler": "http", "payload": Jsonb({"urll": "http://a"})}, 'http does not know: "urll"'),
    ("payload", {"handler": "command", "payload": Jsonb({"args": ["x"]})}, 'command does not know: "args"'),
    ("payload", {"handler": "kafka", "payload": Jsonb({"topik": "x"})}, 'kafka does not know: "topik"'),
    ("payload", {"handler": "sql", "payload": Jsonb({"connection": "x", "statment": "y"})}, 'not know: "statment"'),
    ("payload", {"handler": "python", "payload": Jsonb({"entrypoint": "a:b"})}, 'not know: "entrypoint"'),
    ("payload", {"handler": "http", "payload": Jsonb({**URL, "x" * 500: "y" * 500})}, "does not know"),
    ("payload", {"handler": "command", "payload": Jsonb({"argv": ["x"], "timeout": 5})}, 'does not know: "timeout"'),
    (
        "payload",
        {"handler": "command", "payload": Jsonb({"argv": ["x"], "stdin": 5})},
        "payload.stdin must be a string",
    ),
    ("payload", {"handler": "command", "payload": Jsonb({"argv": ["x"], "env": {"A": 1}})}, "payload.env must be"),
    ("payload", {"handler": "command", "payload": Jsonb({"argv": ["x"], "env": {"A=B": "1"}})}, "payload.env must be"),
    ("payload", {"handler": "command", "payload": Jsonb({})}, "non-empty list of strings"),
    ("payload", {"handler": "command", "payload": None}, "non-empty list of strings"),
    ("payload", {"handler": "command", "payload": Jsonb({"argv": []})}, "non-empty list of strings"),
    ("payload", {"handler": "command", "payload": Jsonb({"argv": "rm -rf"})}, "non-empty list of strings"),
    ("payload", {"handler": "command", "payload": Jsonb({"argv": ["ls", 1]})}, "non-empty list of strings"),
    ("payload", {"handler": "command", "payload": Jsonb({"argv": ["ls", ["x"]]})}, "non-empty list of strings"),
    ("payload", {"handler": "command", "payload": Jsonb({"argv": [""]})}, "non-empty list of strings"),
    ("payload", {"handler": "command", "payload": Jsonb({"argv": [None]})}, "non-empty list of strings"),
    *(
        ("payload", {"handler": handler, "payload": Jsonb(payload)}, says)
        for handler, payload, says in (
            ("http", {**URL, "timeout_seconds": 0}, "payload.timeout_seconds must be more than 0 and at most 86400"),
            ("http", {**URL, "timeout_seconds": "5"}, "payload.timeout_seconds must be more than 0"),
            ("http", {**URL, "retry_on": 404}, "payload.retry_on must be a list of whole numbers from 300 to 999"),
            ("http", {**URL, "headers": {"X Team": "a"}}, "payload.headers has a name that is no header's"),
            ("http", {**URL, "headers": {"": "a"}}, "payload.headers has a name that is no header's"),
            ("http", {**URL, "headers": {"X:": "a"}}, "payload.headers has a name that is no header's"),
            ("http", {**URL, "headers": {"Ü": "a"}}, "payload.headers has a name that is no header's"),
            ("http", {**URL, "headers": {"X": "a\r\nY: b"}}, 'a value that no header holds: of "X"'),
            ("http", {**URL, "headers": {"X": "a\u007f"}}, 'a value that no header holds: of "X"'),
            ("http", {**URL, "retry_on": [200]}, "payload.retry_on must be a list"),
            ("http", {**URL, "retry_on": [404.5]}, "payload.retry_on must be a list"),
            ("http", {**URL, "retry_on": ["404"]}, "payload.retry_on must be a list"),
            ("command", {"argv": ["x"], "cwd": "tmp"}, "payload.cwd must be an absolute path"),
            ("command", {"argv": ["x"], "limits": 5}, "payload.limits must be an object of whole numbers"),
            ("command", {"argv": ["x"], "limits": {"memory_mib": 0}}, "payload.limits must be an object of whole"),
            ("command", {"argv": ["x"], "limits": {"memory_mib": "1"}}, "payload.limits must be an object of whole"),
            ("command", {"argv": ["x"], "limits": {"memory": 1}}, 'payload.limits has a limit .* not known: "memory"'),
            (
                "command",
                {"argv": ["x"], "final_exit_codes": [0]},
                "payload.final_exit_codes must be a list .* 1 to 255",
            ),
            ("kafka", {}, "needs a topic, 1 to 249 letters"),
            ("kafka", ["topic"], "needs a topic"),
            ("kafka", {"topic": "no spaces"}, "payload.topic needs a topic"),
            ("kafka", {"topic": ".."}, "payload.topic needs a topic"),
            ("kafka", {"topic": "t", "key": 5}, "payload.key must be a string"),
            ("kafka", {"topic": "t", "headers": {"a": 1}}, "payload.headers must be an object of strings"),
            ("kafka", {"topic": "t", "partition": 1}, 'does not know: "partition"'),
            ("sql", {}, "needs a connection for handler sql"),
            ("sql", {"connection": "c"}, "needs a statement for handler sql"),
            ("sql", {"connection": "c", "statement": " "}, "payload.statement needs a statement"),
            ("sql", {**SELECT, "parameters": []}, "payload.parameters must be an object"),
            ("sql", {**SELECT, "statement": "SELECT %(x)s"}, 'names a parameter that is not there: "x"'),
            ("sql", {**SELECT, "dsn": "host=db"}, 'does not know: "dsn"'),
            ("python", {}, "needs an entry_point, package.module:function"),
            ("python", {"entry_point": "a.b"}, "payload.entry_point needs an entry_point"),
            ("python", {"entry_point": "a:b", "arguments": [1]}, "payload.arguments must be an object"),
            ("python", {"entry_point": "a:b", "args": {}}, 'does not know: "args"'),
        )
    ),
    ("payload", {"payload": Jsonb({"x": "y" * 65_536})}, "more than 65536"),
    ("misfire_policy", {"misfire_policy": "fire_now"}, "must be one of FIRE_NOW, SKIP, CATCH_UP"),
    ("misfire_grace", {"misfire_grace": "-1 second"}, "must be from 0 to 1 day"),
    ("misfire_grace", {"misfire_grace": "367 days"}, "must be from 0 to 1 day"),
    ("catch_up_limit", {"catch_up_limit": 0}, "must be from 1 to 10000"),
    ("catch_up_limit", {"catch_up_limit": 10001}, "must be from 1 to 10000"),
    ("overlap_policy", {"overlap_policy": "kill"}, "must be one of allow, queue, skip"),
    ("dst_gap", {"dst_gap": "both"}, "must be one of auto, shift, skip"),
    ("dst_overlap", {"dst_overlap": "shift"}, "must be one of"),
    ("spread_seconds", {"spread_seconds": -1}, "must be from 0 to 86400"),
    ("spread_seconds", {"spread_seconds": 86401}, "must be from 0 to 86400"),
    ("max_attempts", {"max_attempts": 0}, "must be from 1 to 1000"),
    ("backoff_seconds", {"backoff_seconds": -0.1}, "must be from 0 to 86400"),
    ("backoff_seconds", {"backoff_seconds": float("nan")}, "must be from 0 to 86400"),
    ("backoff_factor", {"backoff_factor": 0.5}, "must be from 1 to 100"),
    ("backoff_factor", {"backoff_factor": float("inf")}, "must be from 1 to 100"),
    ("max_backoff", {"max_backoff": "24 hours 1 second"}, "must be from 0 to 24 hours"),
    ("max_backoff", {"max_backoff": "1 month"}, "must be from 0 to 24 hours"),
    ("jitter", {"jitter": ""}, "must be one of full, equal, none"),
    ("timeout_seconds", {"timeout_seconds": 0}, "must be more than 0 and at most 86400"),
    ("timeout_seconds", {"timeout_seconds": float("nan")}, "must be more than 0 and at most 86400"),
    ("timeout_seconds", {"timeout_seconds": float("-inf")}, "must be more than 0 and at most 86400"),
]


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
    assert len(diag.message_detail) < 300
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
    assert refusal.value.diag.message_detail == f"{column} is NULL."
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


def test_bounds_are_refused_only_where_python_finds_no_time_in_them(conn: Conn) -> None:
    chance = Random(12)
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    crons = ("@daily", "30 2 * * *", "*/20 9-17 * * 1-5", "0 0 29 2 *", "15 30 4 L * *", "H H * * *", "0 0 1 */3 *")
    refused = 0
    for number in range(400):
        cron, zone = chance.choice(crons), chance.choice(("UTC", "UTC", "America/New_York", "Pacific/Kiritimati"))
        starts = begin + timedelta(seconds=chance.randrange(400 * 86_400), microseconds=chance.choice((0, 1, 999_999)))
        ends = starts + timedelta(seconds=chance.choice((1, 3_600, 86_399, 86_400, 10 * 86_400, 40 * 86_400)))
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


def test_a_search_path_of_the_user_s_own_changes_nothing(conn: Conn) -> None:
    conn.execute("CREATE SCHEMA trap")
    conn.execute("CREATE FUNCTION trap.yes(text, text) RETURNS boolean LANGUAGE sql RETURN true")
    conn.execute("CREATE OPERATOR trap.~ (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.yes)")
    conn.execute("SET search_path = trap, pg_catalog")
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        insert(conn, cron="nonsense")
