"""Where somebody holds a lock on a table: who asks in vain says so soon, and names the holder."""

from __future__ import annotations

import json
import logging
import threading

import psycopg
import pytest
from click.testing import CliRunner

from cli.main import cli
from coordinator import slow_answers
from coordinator.asking import Asking, Stopping
from cronstream.settings import CoordinatorSettings
from sql import migrate as runner
from sql.migrate import Migration, SchemaError, load_migrations, migrate
from tests.support.installation import TestInstallation
from tests.support.poll import eventually

LOCK = "LOCK TABLE cronstream.job_definitions"


def test_status_and_doctor_name_who_locks_a_table(installation: TestInstallation) -> None:
    with installation.connect(autocommit=False, application_name="the-culprit") as user:
        user.execute(LOCK)
        who = f"held by pid {user.info.backend_pid} (user {user.info.user}, the-culprit, its transaction open since 20"
        status = CliRunner().invoke(cli, ["status", "--json"], env=installation.variables)
        doctor = CliRunner().invoke(cli, ["doctor", "--json"], env=installation.variables)
    assert who in json.loads(status.stdout)["postgres"]["unknown"]
    checks = {check["name"]: check for check in json.loads(doctor.stdout)["checks"]}
    assert checks["schema"]["state"] == "ok"
    assert checks["definitions"]["state"] == "problem"
    assert who in checks["definitions"]["says"]


def test_whom_an_alter_waits_for_is_named_behind_it(installation: TestInstallation) -> None:
    with (
        installation.connect(autocommit=False) as reader,
        installation.connect(autocommit=False) as owner,
        installation.connect() as watcher,
    ):
        held, queued = reader.info.backend_pid, owner.info.backend_pid
        reader.execute("SELECT FROM cronstream.job_definitions")
        alter = threading.Thread(
            target=owner.execute, args=("ALTER TABLE cronstream.job_definitions ADD COLUMN note text",)
        )
        alter.start()
        waits = "SELECT FROM pg_locks WHERE NOT granted AND pid = %s"
        eventually(lambda: watcher.execute(waits, [queued]).fetchone() is not None, within=10)
        told = CliRunner().invoke(cli, ["jobs", "list"], env=installation.variables)
        reader.rollback()
        alter.join()
        owner.rollback()
    assert told.exit_code == 1
    first, second = told.output.split(", behind ")
    assert f"pid {queued} " in first
    assert f"pid {held} " in second


def test_a_migration_that_gets_no_lock_leaves_nothing_and_names_the_holder(
    installation: TestInstallation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LOCK_SECONDS", 1)
    known = load_migrations()
    text = "CREATE TABLE cronstream.a (x int); ALTER TABLE cronstream.job_definitions ADD COLUMN note text"
    known.append(Migration(len(known) + 1, "more", text))
    with installation.connect() as connection:
        with installation.connect(autocommit=False) as user:
            user.execute("SELECT FROM cronstream.job_definitions")
            said = rf"_more has waited for 1 s and left nothing behind: .* pid {user.info.backend_pid} .*try again"
            with pytest.raises(SchemaError, match=said):
                migrate(connection, known)
        assert connection.execute("SELECT to_regclass('cronstream.a')").fetchone() == (None,)
        assert connection.execute("SHOW lock_timeout").fetchone() == ("0",)
        assert migrate(connection, known) == known[-1:]


def test_the_leader_says_that_its_reader_waits_and_for_whom(
    installation: TestInstallation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(slow_answers, "LOOK_SECONDS", 0.05)
    over = threading.Event()
    settings = installation.settings(CoordinatorSettings, node="one")
    asking = Asking(settings, "reader", stopping=over.is_set, pause=over.wait)

    def ask() -> None:
        try:
            asking("load", {"after_us": None, "after_id": 0, "until_us": 1, "most": 10})
            answered.set()
        except (Stopping, psycopg.Error):
            pass

    answered, thread = threading.Event(), threading.Thread(target=ask)
    with installation.connect(autocommit=False) as user, caplog.at_level(logging.WARNING):
        user.execute("LOCK TABLE cronstream.job_definitions, cronstream.schedules")
        thread.start()
        who = f"reader for 0 s; the lock that it needs is held by pid {user.info.backend_pid} "
        eventually(lambda: who in caplog.text, within=20, says=who)
        assert not answered.is_set()
    thread.join(20)
    assert answered.is_set()
    over.set()
    asking.close()
