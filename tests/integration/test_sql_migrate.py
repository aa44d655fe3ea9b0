"""The runner on a real server."""

from __future__ import annotations

import threading
import zoneinfo
from datetime import date, timedelta
from typing import Any

import psycopg
import pytest

import sql
from cronstream.clock import SystemClock, to_datetime
from cronstream.settings import Installation
from sql.migrate import Migration, SchemaError, load_migrations, migrate, schema_version_check
from tests.support.installation import TestInstallation


def versions(conn: psycopg.Connection[tuple[object, ...]]) -> list[object]:
    return [row[0] for row in conn.execute("SELECT version FROM cronstream.schema_migrations ORDER BY 1")]


def test_an_empty_database_is_brought_up_to_date_once(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn, autocommit=True) as conn:
        with pytest.raises(SchemaError, match="no cronstream schema: run"):
            schema_version_check(conn)
        assert migrate(conn) == load_migrations()
        assert migrate(conn) == []
        schema_version_check(conn)


def test_the_owner_needs_no_superuser(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn, autocommit=True) as conn:
        assert conn.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user").fetchone() == (False,)
        migrate(conn)


def test_two_runners_at_once_apply_each_migration_once(postgres_dsn: str) -> None:
    done: list[int] = []

    def run() -> None:
        with psycopg.connect(postgres_dsn, autocommit=True) as conn:
            done.extend(migration.version for migration in migrate(conn))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [migration.version for migration in load_migrations()]


def test_a_failed_migration_leaves_nothing_and_names_itself(postgres_dsn: str) -> None:
    good = Migration(1, "good", "CREATE TABLE cronstream.a (x int)")
    bad = Migration(2, "bad", "CREATE TABLE cronstream.b (x int); SELECT 1/0")
    with psycopg.connect(postgres_dsn, autocommit=True) as conn:
        with pytest.raises(SchemaError, match="0002_bad failed and left nothing behind: division by zero"):
            migrate(conn, [good, bad])
        assert versions(conn) == [1]
        assert conn.execute("SELECT to_regclass('cronstream.b')").fetchone() == (None,)
        # and the lock is free again
        assert [m.version for m in migrate(conn, [good, Migration(2, "mended", "SELECT 1")])] == [2]


def test_newer_older_and_changed_schemas_are_refused(postgres_dsn: str) -> None:
    with psycopg.connect(postgres_dsn, autocommit=True) as conn:
        migrate(conn)
        conn.execute("INSERT INTO cronstream.schema_migrations (version, name, checksum) VALUES (9999, 'later', 'x')")
        for call in (migrate, schema_version_check):
            with pytest.raises(SchemaError, match=r"version 9999 \(later\).*newer code"):
                call(conn)
        conn.execute("DELETE FROM cronstream.schema_migrations WHERE version = 9999")
        conn.execute("UPDATE cronstream.schema_migrations SET checksum = 'x' WHERE version = 2")
        for call in (migrate, schema_version_check):
            with pytest.raises(SchemaError, match="was changed after it was applied"):
                call(conn)
        conn.execute("DELETE FROM cronstream.schema_migrations WHERE version >= 2")
        with pytest.raises(SchemaError, match="is outdated"):
            schema_version_check(conn)


def test_a_database_is_claimed_once_and_refused_to_every_other_installation(installation: TestInstallation) -> None:
    settings = installation.settings(Installation)
    other = installation.settings(Installation, installation="mistyped")
    said = f"belongs to the installation {installation.name}, and CRONSTREAM_INSTALLATION is mistyped: set it to"
    with sql.connect(settings) as conn:
        assert not conn.autocommit
        sql.claim(conn, installation.name)
        with pytest.raises(sql.OtherInstallation, match=said):
            sql.claim(conn, "mistyped")
    for autocommit in (True, False):
        with pytest.raises(sql.OtherInstallation, match=said):
            sql.connect(other, autocommit=autocommit)


def test_the_zones_are_those_of_the_pinned_tzdata(installation: TestInstallation) -> None:
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(())
    try:
        pinned = zoneinfo.available_timezones()
    finally:
        zoneinfo.reset_tzpath(before)
    with installation.connect() as conn:
        assert {row[0] for row in conn.execute("SELECT name FROM cronstream.zones")} == pinned


def test_a_day_s_partition_is_made_once_in_utc(installation: TestInstallation) -> None:
    today = to_datetime(SystemClock().wall_us()).date()
    day, next_day = (f"{today + timedelta(days=ahead)}" for ahead in (20, 21))
    with installation.connect() as conn:
        conn.execute("SET timezone = 'Pacific/Apia'")
        for made in (True, False):
            assert conn.execute("SELECT cronstream.ensure_job_runs_partition(%s)", (day,)).fetchone() == (made,)
        insert = (
            "INSERT INTO cronstream.job_runs (job_id, scheduled_time, attempt, outcome) VALUES (1, %s, 1, 'succeeded')"
        )
        for inside in (f"{day}T00:00:00Z", f"{day}T23:59:59.999999Z"):
            conn.execute(insert, (inside,))
        with pytest.raises(psycopg.errors.CheckViolation, match="no partition"):
            conn.execute(insert, (f"{next_day}T00:00:00Z",))
        with pytest.raises(psycopg.errors.UniqueViolation):
            conn.execute(insert, (f"{day}T00:00:00Z",))
        table = f"cronstream.job_runs_{day.replace('-', '')}"
        assert conn.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() == (2,)


def test_days_long_past_share_partitions_and_days_far_ahead_have_none(installation: TestInstallation) -> None:
    today = to_datetime(SystemClock().wall_us()).date()
    ensure = "SELECT cronstream.ensure_job_runs_partition(%s, %s)"

    def back(days: int) -> date:
        return today - timedelta(days=days)

    def past() -> list[tuple[Any, ...]]:
        return conn.execute(
            "SELECT day, last_day FROM cronstream.job_runs_tables WHERE attached AND day < %s ORDER BY day", (back(1),)
        ).fetchall()

    with installation.connect() as conn:
        conn.execute("SET timezone = 'Pacific/Apia'")
        for day, alone, made in (
            (back(100), True, True),
            (back(99), False, True),
            (back(63), False, False),
            (back(62), False, True),
            (date(1000, 1, 1), False, True),
            (date(1, 1, 1), False, False),
            (back(101), True, False),
        ):
            assert conn.execute(ensure, (day, alone)).fetchone() == (made,), day
        assert past() == [
            (date(1, 1, 1), back(101)),
            (back(100), back(100)),
            (back(99), back(63)),
            (back(62), back(62)),
        ]
        insert = (
            "INSERT INTO cronstream.job_runs (job_id, scheduled_time, attempt, outcome) VALUES (1, %s, 0, 'skipped')"
        )
        for moment in ("0044-03-15 12:00Z BC", "0001-01-01 00:00Z", f"{back(101)} 23:59:59.999999Z"):
            conn.execute(insert, (moment,))
        table = f"cronstream.job_runs_00010101_to_{back(101):%Y%m%d}"
        assert conn.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() == (3,)
        for refused in (back(-32), date.max):
            with pytest.raises(psycopg.errors.InvalidParameterValue, match="no partition for day"):
                conn.execute(ensure, (refused, False))


def test_partitions_made_at_once_do_not_collide(installation: TestInstallation) -> None:
    made: list[bool] = []

    def make() -> None:
        with installation.connect() as conn:
            row = conn.execute(
                "SELECT cronstream.ensure_job_runs_partition((now() AT TIME ZONE 'UTC')::date + 20)"
            ).fetchone()
            assert row is not None
            made.append(row[0])

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 5 + [True]


def test_a_week_of_partitions_is_there_from_the_start(installation: TestInstallation) -> None:
    with installation.connect() as conn:
        days = conn.execute(
            "SELECT count(*) FROM generate_series(0, 7) AS ahead"
            " WHERE to_regclass('cronstream.job_runs_'"
            " || to_char((now() AT TIME ZONE 'UTC')::date + ahead::int, 'YYYYMMDD')) IS NOT NULL"
        ).fetchone()
    assert days == (8,)
