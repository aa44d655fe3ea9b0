"""Requests that come while another transaction edits the job: what is refused and answered is true of what is there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.requests import Conn, call, definition, one

Answer = dict[str, Any]
CRON = {"cron": "*/5 * * * *", "handler": "log"}
ONCE = {"run_at": "2030-01-01T00:00:00Z", "handler": "log"}


@pytest.fixture
def first(database: str) -> Iterator[Conn]:
    """Whose transaction is open while the other waits."""
    with psycopg.connect(database) as conn:
        yield conn
        conn.rollback()
        conn.execute("DELETE FROM cronstream.job_definitions")
        conn.execute("DELETE FROM cronstream.requests")


@contextmanager
def waiting(database: str, first: Conn, ask: Callable[[Conn], Answer]) -> Iterator[list[Answer | psycopg.Error]]:
    """``ask`` waits for a lock of the first's; what became of it is there after the block, in which the first ends."""
    became: list[Answer | psycopg.Error] = []
    with psycopg.connect(database, autocommit=True) as second:

        def run() -> None:
            try:
                became.append(ask(second))
            except psycopg.Error as error:
                became.append(error)

        other = threading.Thread(target=run)
        other.start()
        with psycopg.connect(database, autocommit=True) as watcher:
            blocked = "SELECT %s = ANY (pg_blocking_pids(%s))"
            while other.is_alive() and not one(watcher, blocked, first.info.backend_pid, second.info.backend_pid):
                pass
        assert other.is_alive(), became
        yield became
        other.join(10)
        assert not other.is_alive()


def upsert(conn: Conn, given: dict[str, Any], name: str = "race") -> Answer:
    return call(conn, "upsert", "default", name, Jsonb(given))


def one_shot(conn: Conn) -> Answer:
    return call(conn, "one_shot", "default", "race", "2031-01-01T00:00:00Z", "log")


@pytest.mark.parametrize("was", [None, ONCE], ids=["made", "edited"])
def test_a_one_shot_replaces_no_job_that_becomes_recurring_meanwhile(
    database: str, first: Conn, was: dict[str, Any] | None
) -> None:
    if was is not None:
        upsert(first, was)
        first.commit()
        first.execute("UPDATE cronstream.job_definitions SET cron = '*/5 * * * *', run_at = NULL")
    else:
        first.execute(
            "INSERT INTO cronstream.job_definitions (name, cron, handler) VALUES ('race', '*/5 * * * *', 'log')"
        )
    with waiting(database, first, one_shot) as became:
        first.commit()
    (error,) = became
    assert isinstance(error, psycopg.errors.InvalidParameterValue)
    assert "belongs to a recurring job" in (error.diag.message_primary or "")
    assert "It has cron '*/5 * * * *'." in (error.diag.message_detail or "")
    assert (definition(first, "race")["cron"], definition(first, "race")["run_at"]) == ("*/5 * * * *", None)


def test_a_one_shot_replaces_a_job_that_recurs_no_more(database: str, first: Conn) -> None:
    upsert(first, CRON)
    first.commit()
    first.execute("UPDATE cronstream.job_definitions SET cron = NULL, run_at = '2030-01-01Z'")
    with waiting(database, first, one_shot) as became:
        first.commit()
    (answer,) = became
    assert isinstance(answer, dict)
    assert (answer["created"], answer["changed"]) == (False, True)
    assert definition(first, "race")["run_at"].startswith("2031")


@pytest.mark.parametrize(
    ("after", "created", "changed"), [(CRON, False, False), ({**CRON, "max_attempts": 2}, False, True)]
)
def test_of_two_upserts_at_once_one_has_created_the_job(
    database: str, first: Conn, after: dict[str, Any], created: bool, changed: bool
) -> None:
    made = upsert(first, CRON)
    assert (made["created"], made["changed"]) == (True, True)
    with waiting(database, first, lambda conn: upsert(conn, after)) as became:
        first.commit()
    (answer,) = became
    assert isinstance(answer, dict)
    assert (answer["job_id"], answer["created"], answer["changed"]) == (made["job_id"], created, changed)


@pytest.mark.parametrize("ends", ["rolled back", "deleted"])
def test_an_upsert_of_a_job_that_goes_meanwhile_creates_it(database: str, first: Conn, ends: str) -> None:
    upsert(first, CRON)
    if ends == "deleted":
        first.commit()
        call(first, "delete", "default", "race")
    with waiting(database, first, lambda conn: upsert(conn, ONCE)) as became:
        first.commit() if ends == "deleted" else first.rollback()
    (answer,) = became
    assert isinstance(answer, dict)
    assert (answer["created"], answer["changed"]) == (True, True)


@pytest.mark.parametrize(
    ("function", "values"), [("patch", (Jsonb({"max_attempts": 2}),)), ("pause", ()), ("resume", ()), ("delete", ())]
)
def test_an_edit_of_a_job_that_goes_meanwhile_is_refused(
    database: str, first: Conn, function: str, values: tuple[Any, ...]
) -> None:
    upsert(first, CRON)
    first.commit()
    call(first, "delete", "default", "race")
    with waiting(database, first, lambda conn: call(conn, function, "default", "race", *values)) as became:
        first.commit()
    (error,) = became
    assert isinstance(error, psycopg.errors.NoDataFound)
    assert "there is no job default/race" in (error.diag.message_primary or "")


def test_of_two_pauses_at_once_one_has_changed_the_job(database: str, first: Conn) -> None:
    upsert(first, CRON)
    first.commit()
    assert call(first, "pause", "default", "race")["changed"] is True
    with waiting(database, first, lambda conn: call(conn, "pause", "default", "race")) as became:
        first.commit()
    (answer,) = became
    assert isinstance(answer, dict)
    assert answer["changed"] is False
