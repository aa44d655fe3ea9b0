"""Who may execute which function of the schema, and whose strings its functions read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.installation import TestInstallation

Conn = psycopg.Connection[tuple[Any, ...]]

ROLE = "pg_read_all_stats"
"""A role that is there: the owner may not make one."""

DEFINERS: dict[str, set[str]] = {
    "grant_definitions": {
        *("run_now", "backfill", "redrive", "upsert", "one_shot", "patch", "pause", "resume", "delete"),
        "refuse_command",
    },
    "grant_history": set(),
    "grant_viewing": set(),
    "grant_capture": set(),
}
"""What each grant lets a role do with the owner's rights."""


SETTINGS = ("search_path=pg_catalog, pg_temp", "standard_conforming_strings=on")


@pytest.fixture
def conn(database: str) -> Iterator[Conn]:
    """A transaction that is rolled back."""
    with psycopg.connect(database) as conn:
        yield conn
        conn.rollback()


def functions(conn: Conn, condition: str, **given: str) -> set[str]:
    query = f"SELECT DISTINCT proname FROM pg_proc p WHERE pronamespace = 'cronstream'::regnamespace AND ({condition})"
    return {row[0] for row in conn.execute(query, given)}  # type: ignore[arg-type]


def test_no_function_is_everybody_s(conn: Conn) -> None:
    everybody = "EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) WHERE grantee = 0)"
    assert functions(conn, everybody) == set()


@pytest.mark.parametrize("grant", DEFINERS)
def test_a_role_gets_the_owner_s_rights_through_named_functions_alone(conn: Conn, grant: str) -> None:
    conn.execute(f"SELECT cronstream.{grant}(%s)", [ROLE])  # type: ignore[arg-type]
    may = "has_function_privilege(%(role)s, p.oid, 'EXECUTE')"
    assert functions(conn, f"{may} AND prosecdef", role=ROLE) == DEFINERS[grant]
    # A trigger function of another's table, and what gives rights, are nobody's at all.
    assert functions(conn, f"{may} AND (prorettype = 'trigger'::regtype OR proname ~ '^grant_')", role=ROLE) == set()


def test_a_role_hangs_no_trigger_function_on_a_table_of_its_own(conn: Conn) -> None:
    conn.execute("SELECT cronstream.grant_history(%s)", [ROLE])
    conn.execute("SELECT cronstream.grant_definitions(%s)", [ROLE])
    conn.execute("CREATE TEMP TABLE mine (job_id bigint, revision bigint)")
    conn.execute(f"GRANT ALL ON mine TO {ROLE}")  # type: ignore[arg-type]
    conn.execute(f"SET LOCAL ROLE {ROLE}")  # type: ignore[arg-type]
    for function in ("record_changes", "announce_changes", "check_and_stamp", "tell_handlers", "tell_surprises"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match=function), conn.transaction():
            conn.execute(
                "CREATE TRIGGER forge AFTER DELETE ON mine REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT"
                f" EXECUTE FUNCTION cronstream.{function}()"  # type: ignore[arg-type]
            )
    for call in (
        "ensure_job_runs_partition('2020-01-01')",
        "forget_requests('1 day')",
        f"grant_viewing('{ROLE}')",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), conn.transaction():
            conn.execute(f"SELECT cronstream.{call}")  # type: ignore[arg-type]


def test_what_runs_in_a_user_s_session_has_its_own_settings(conn: Conn) -> None:
    """A body that is kept as text is read as the session reads strings, and its plan is kept for the session."""
    conn.execute("SELECT cronstream.grant_definitions(%s), cronstream.grant_viewing(%s)", [ROLE, ROLE])
    path, strings = (f"coalesce('{setting}' = ANY (proconfig), false)" for setting in SETTINGS)
    assert functions(conn, f"{path} <> {strings}") == set()
    assert functions(conn, f"(prosecdef OR prorettype = 'trigger'::regtype) AND NOT {strings}") == set()
    # Without, for the sake of speed: what no role calls but through those, or what has no backslash to read.
    slashes = r"has_function_privilege(%(role)s, p.oid, 'EXECUTE') AND prosqlbody IS NULL AND prosrc ~ '\\|U&'"
    assert functions(conn, f"{slashes} AND NOT {strings}", role=ROLE) == set()
    # Postgres puts its body in place of a call, which a function with settings of its own forbids.
    assert functions(conn, r"proname = 'schedule_of' AND proconfig IS NULL AND prosrc !~ '\\'") == {"schedule_of"}


@pytest.mark.parametrize(
    "command",
    [
        {"command": "backfill", "begins": "2026-01-01T00:00:00Z", "ends": "2026-01-02T00:00:00Z"},
        {"command": "backfill", "begins": "2026-01-01T00:00:00Z", "ends": "2026-01-01T00:01:00Z"},
        {"command": "backfill", "begins": "nonsense", "ends": "2026-01-02T00:00:00Z"},
        {"command": "upsert", "definition": {"cron": "0 9 * * FRIL", "handler": "http", "payload": {"url": "x"}}},
        {"command": "upsert", "definition": {"cron": "0 9 31 2 *", "handler": "log"}},
        {"command": "patch", "changes": {"misfire_grace": "99999999999 days"}},
        {"command": "patch", "changes": {"timezon": "UTC"}},
        {"command": "patch", "changes": {"timezone": "berlin"}},
        {"command": "pause"},
        {"command": "resume"},
        {"command": "run-now", "name": "absent"},
        {"command": "one-shot", "run_at": "2030-01-01T00:00:00Z", "handler": "log"},
        {"command": "delete"},
    ],
    ids=str,
)
def test_whatever_a_role_may_ask_is_answered_to_it_as_to_the_owner(conn: Conn, command: dict[str, Any]) -> None:
    conn.execute("SELECT cronstream.grant_definitions(%s)", [ROLE])
    conn.execute(
        "INSERT INTO cronstream.job_definitions (name, cron, timezone, spread_seconds, handler)"
        " VALUES ('job', 'H 9 * * *', 'Europe/Berlin', 10, 'log')"
    )
    whole = Jsonb({"id": "mine", "tenant": "default", "name": "job", **command})
    answers = []
    for role in ("NONE", ROLE):
        with conn.transaction(force_rollback=True):
            conn.execute(f"SET LOCAL ROLE {role}; SET LOCAL standard_conforming_strings = off")  # type: ignore[arg-type]
            row = conn.execute("SELECT cronstream.apply_command(%s)", [whole]).fetchone()
            assert row is not None
            answers.append({key: row[0].get(key) for key in ("accepted", "job_id", "error")})
    assert answers[0] == answers[1]


def test_edits_that_nobody_would_hear_of_are_refused(installation: TestInstallation) -> None:
    password = installation.endpoints.password_file.with_name("postgres_superuser_password").read_text().strip()
    insert = "INSERT INTO cronstream.job_definitions (name, cron, handler) VALUES ('job', '@daily', 'log')"
    with installation.connect(user="postgres", password=password) as superuser:
        superuser.execute(insert)
        superuser.execute("SET session_replication_role = replica")
        for edit in (
            insert,
            "UPDATE cronstream.job_definitions SET name = 'x'",
            "DELETE FROM cronstream.job_definitions",
        ):
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="nobody would hear of it"):
                superuser.execute(edit)
        superuser.execute("RESET session_replication_role")
        superuser.execute("DELETE FROM cronstream.job_definitions")
