"""Days of history go into files and come back; nothing is lost at any step, and inserts wait for none of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psycopg
import pytest

from cronstream.clock import SystemClock, to_datetime
from streams import parquet
from streams.days import Days, HistoryError, alone
from streams.housekeeping import AHEAD_DAYS, Housekeeping
from tests.support.installation import TestInstallation

TODAY = to_datetime(SystemClock().wall_us()).date()
OLD = TODAY - timedelta(days=40)
TEXTS = ["plain", "", 'a "quoted"\n,line\r\n', "\\.", "ü€", None, "\\N", "NULL"]


@pytest.fixture
def connection(installation: TestInstallation) -> Iterator[psycopg.Connection[Any]]:
    with installation.connect() as connection:
        yield connection


def insert(connection: psycopg.Connection[Any], day: date, jobs: range, written: date | None = None) -> None:
    """Rows of a day, written on it unless another is said."""
    when = datetime.combine(day, time(12), UTC)
    connection.execute("SELECT cronstream.ensure_job_runs_partition(%s)", (day,))
    connection.execute(
        "INSERT INTO cronstream.job_runs"
        " (job_id, scheduled_time, attempt, tenant, name, outcome, started_at, recorded_at, error)"
        " SELECT job, %s + job * interval '1.000001 second', 1, 'acme', 'report ' || job, 'failed', now(), %s,"
        "        (%s::text[])[job %% array_length(%s::text[], 1) + 1]"
        " FROM unnest(%s::bigint[]) AS job",
        (when, datetime.combine(written or day, time(13), UTC), TEXTS, TEXTS, list(jobs)),
    )


def rows(connection: psycopg.Connection[Any], day: date) -> list[tuple[Any, ...]]:
    begin = datetime.combine(day, time(), UTC)
    return connection.execute(
        "SELECT * FROM cronstream.job_runs WHERE scheduled_time >= %s AND scheduled_time < %s ORDER BY 1, 2, 3, 4",
        (begin, begin + timedelta(days=1)),
    ).fetchall()


def partition(connection: psycopg.Connection[Any], day: date) -> str | None:
    row = connection.execute("SELECT cronstream.job_runs_partition(%s)::text", (day,)).fetchone()
    assert row is not None
    return row[0]


def source_of(connection: psycopg.Connection[Any], day: date) -> str:
    name = partition(connection, day)
    assert name is not None
    return name


def tidy(installation: TestInstallation, folder: Path | None, days: int = 30) -> None:
    Housekeeping(lambda: psycopg.connect(installation.dsn), folder, days, SystemClock()).tidy()


def test_a_day_that_is_not_over_is_not_restored(connection: psycopg.Connection[Any], tmp_path: Path) -> None:
    insert(connection, TODAY, range(1, 10))
    days = Days(connection, tmp_path)
    days.export(TODAY, source_of(connection, TODAY))
    with pytest.raises(HistoryError, match="is not over in UTC"):
        days.restore(TODAY, timedelta(days=7))
    assert [export.keep_until for export in days.exports(TODAY)] == [None]


def test_a_day_goes_into_a_file_and_comes_back_as_it_was(
    installation: TestInstallation, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    insert(connection, OLD, range(1, 2000))
    insert(connection, TODAY, range(1, 10))
    before = rows(connection, OLD)
    tidy(installation, tmp_path)
    assert partition(connection, OLD) is None
    assert rows(connection, OLD) == []
    assert len(rows(connection, TODAY)) == 9
    (export,) = Days(connection, tmp_path).exports(OLD)
    assert export.dropped_at is not None
    assert parquet.content(tmp_path / export.file) == export.content == (1999, export.checksum)
    assert [file.name for file in tmp_path.iterdir()] == [export.file]

    with alone(installation.connect) as granted:
        assert granted
        assert Days(connection, tmp_path).restore(OLD, timedelta(days=7)) == 1999
    assert rows(connection, OLD) == before
    tidy(installation, tmp_path)
    assert rows(connection, OLD) == before, "a restored day stays for as long as was asked"

    connection.execute("UPDATE cronstream.history_exports SET keep_until = now()")
    tidy(installation, tmp_path)
    assert rows(connection, OLD) == []
    assert Days(connection, tmp_path).exports(OLD)[0].content == export.content
    assert [file.name for file in tmp_path.iterdir()] == [export.file]


def test_a_day_stays_until_what_was_written_to_it_late_is_old_as_well(
    installation: TestInstallation, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    long_ago, gone = date(2020, 1, 1), OLD - timedelta(days=1)
    insert(connection, gone, range(1, 10))
    insert(connection, OLD, range(1, 10))
    insert(connection, OLD, range(10, 11), written=TODAY - timedelta(days=30))
    insert(connection, long_ago, range(1, 2), written=TODAY)
    tidy(installation, tmp_path, days=30)
    assert [len(rows(connection, day)) for day in (gone, OLD, long_ago)] == [0, 10, 1]
    tidy(installation, tmp_path, days=29)
    assert [len(rows(connection, day)) for day in (gone, OLD, long_ago)] == [0, 0, 1]


def test_what_is_long_past_goes_once_it_was_written_long_ago_and_comes_back(
    installation: TestInstallation, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """Though rows of long ago come every day, so that the whole partition is never old."""
    roman, lately = date(79, 8, 24), TODAY - timedelta(days=70)
    insert(connection, roman, range(1, 10), written=OLD)
    insert(connection, lately, range(1, 5), written=OLD)
    insert(connection, lately, range(5, 8), written=TODAY)
    assert source_of(connection, roman) == source_of(connection, lately)
    before = rows(connection, roman), rows(connection, lately)
    tidy(installation, tmp_path)
    assert (rows(connection, roman), rows(connection, lately)) == ([], before[1][4:])
    days = Days(connection, tmp_path)
    (export,) = days.exports()
    assert (export.day, export.last_day, export.rows) == (date(1, 1, 1), TODAY - timedelta(days=63), 13)
    assert export.file == f"job_runs_00010101_to_{export.last_day:%Y%m%d}.parquet"
    tidy(installation, tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == [export.file]

    with alone(installation.connect):
        assert days.restore(lately, timedelta(days=1)) == 13
    tidy(installation, tmp_path)
    assert (rows(connection, roman), rows(connection, lately)) == before, "restored days stay for as long as was asked"
    connection.execute("UPDATE cronstream.history_exports SET keep_until = now()")
    tidy(installation, tmp_path)
    assert (rows(connection, roman), rows(connection, lately)) == ([], before[1][4:])
    (export,) = days.exports()
    assert export.dropped_at is not None
    assert [one.name for one in tmp_path.iterdir()] == [export.file]

    connection.execute("UPDATE cronstream.job_runs SET recorded_at = '2000-01-01'")
    tidy(installation, tmp_path)
    assert partition(connection, lately) is None
    assert [(one.part, one.rows) for one in days.exports()] == [(1, 13), (2, 3)]
    with alone(installation.connect):
        assert days.restore(roman, timedelta(days=1)) == 16
    assert rows(connection, roman) == before[0]
    assert [row[0] for row in rows(connection, lately)] == list(range(1, 8))


def test_rows_that_were_set_apart_are_exported_by_the_next_round(
    installation: TestInstallation,
    connection: psycopg.Connection[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roman = date(79, 8, 24)
    insert(connection, roman, range(1, 10), written=OLD)
    insert(connection, roman, range(10, 12), written=TODAY)
    with pytest.raises(HistoryError, match="is no folder"):
        tidy(installation, tmp_path / "not-mounted")
    assert len(rows(connection, roman)) == 11
    with monkeypatch.context() as patch:
        patch.setattr(Days, "_drop", Mock(side_effect=OSError("no more")))
        with pytest.raises(OSError, match="no more"):
            tidy(installation, tmp_path)
    assert len(rows(connection, roman)) == 2
    tidy(installation, tmp_path)
    assert [one.rows for one in Days(connection, tmp_path).exports()] == [9]
    assert connection.execute("SELECT count(*) FROM cronstream.job_runs_tables WHERE NOT attached").fetchone() == (0,)


def test_a_folder_that_is_not_there_takes_no_history_along(
    installation: TestInstallation, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    insert(connection, OLD, range(1, 5))
    with pytest.raises(HistoryError, match="not-mounted is no folder: make it first"):
        tidy(installation, tmp_path / "not-mounted")
    assert len(rows(connection, OLD)) == 4
    assert list(tmp_path.iterdir()) == []


def test_partitions_are_made_a_week_ahead_and_no_folder_means_no_retention(
    installation: TestInstallation, connection: psycopg.Connection[Any]
) -> None:
    insert(connection, OLD, range(1, 5))
    last = TODAY + timedelta(days=AHEAD_DAYS)
    connection.execute(f"DROP TABLE {source_of(connection, last)}")
    tidy(installation, None)
    assert partition(connection, last) is not None
    assert len(rows(connection, OLD)) == 4


@pytest.mark.parametrize("step", ["exported", "detachment begun", "detached", "late row after the export"])
def test_whatever_step_was_the_last_the_next_round_ends_it(
    installation: TestInstallation, connection: psycopg.Connection[Any], tmp_path: Path, step: str
) -> None:
    insert(connection, OLD, range(1, 100))
    source = source_of(connection, OLD)
    days = Days(connection, tmp_path)
    days.export(OLD, source)
    if step == "late row after the export":
        insert(connection, OLD, range(100, 101))
    if step in ("detached", "late row after the export"):
        connection.execute(f"ALTER TABLE cronstream.job_runs DETACH PARTITION {source} CONCURRENTLY")
    if step == "detachment begun":
        with installation.connect(autocommit=False) as reader:
            reader.execute("SELECT count(*) FROM cronstream.job_runs")
            connection.execute("SET statement_timeout = 500")
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute(f"ALTER TABLE cronstream.job_runs DETACH PARTITION {source} CONCURRENTLY")
            connection.execute("SET statement_timeout = 0")
    tidy(installation, tmp_path)
    assert partition(connection, OLD) is None
    assert connection.execute("SELECT to_regclass(%s)", (source,)).fetchone() == (None,)
    (export,) = days.exports(OLD)
    assert export.rows == (100 if step == "late row after the export" else 99)
    assert parquet.content(tmp_path / export.file) == export.content


def test_a_file_that_was_spoiled_is_written_again_before_anything_is_dropped(
    installation: TestInstallation, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    insert(connection, OLD, range(1, 100))
    days = Days(connection, tmp_path)
    export = days.export(OLD, source_of(connection, OLD))
    file = tmp_path / export.file
    file.write_bytes(file.read_bytes()[:-100])
    tidy(installation, tmp_path)
    assert parquet.content(file) == export.content
    assert partition(connection, OLD) is None
    file.write_bytes(b"not Parquet")
    with alone(installation.connect), pytest.raises(HistoryError, match="cannot be read"):
        days.restore(OLD, timedelta(days=1))
    assert rows(connection, OLD) == []


def test_rows_that_come_after_a_day_is_gone_get_a_file_of_their_own(
    installation: TestInstallation, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    insert(connection, OLD, range(1, 10))
    tidy(installation, tmp_path)
    insert(connection, OLD, range(10, 12))
    tidy(installation, tmp_path)
    days = Days(connection, tmp_path)
    assert [(one.part, one.rows) for one in days.exports(OLD)] == [(1, 9), (2, 2)]
    with alone(installation.connect):
        assert days.restore(OLD, timedelta(days=1)) == 11
    assert [row[0] for row in rows(connection, OLD)] == list(range(1, 12))


def test_a_late_row_of_a_day_that_is_being_dropped_gets_a_table_of_its_own(
    installation: TestInstallation, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    insert(connection, OLD, range(1, 10))
    source = source_of(connection, OLD)
    connection.execute(f"ALTER TABLE cronstream.job_runs DETACH PARTITION {source} CONCURRENTLY")
    insert(connection, OLD, range(50, 51))
    assert source_of(connection, OLD) == f"{source}_2"
    tidy(installation, tmp_path)
    exports = Days(connection, tmp_path).exports(OLD)
    assert sorted(one.rows for one in exports) == [1, 9]


def test_a_detachment_that_nobody_carries_on_is_ended_by_the_next_late_row(
    installation: TestInstallation, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    insert(connection, OLD, range(1, 10))
    source = source_of(connection, OLD)
    with installation.connect(autocommit=False) as reader:
        reader.execute("SELECT count(*) FROM cronstream.job_runs")
        connection.execute("SET statement_timeout = 500")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(f"ALTER TABLE cronstream.job_runs DETACH PARTITION {source} CONCURRENTLY")
        connection.execute("SET statement_timeout = 0")
    being_detached = pytest.raises(psycopg.OperationalError, match="is being detached")
    with alone(installation.connect), being_detached:
        insert(connection, OLD, range(50, 51))
    insert(connection, OLD, range(50, 51))
    assert source_of(connection, OLD) == f"{source}_2"


def test_inserts_and_readers_wait_for_nothing_while_days_are_let_go(
    installation: TestInstallation, connection: psycopg.Connection[Any], tmp_path: Path
) -> None:
    for back in range(4):
        insert(connection, OLD - timedelta(days=back), range(1, 3000))
    over = threading.Event()
    waits: list[float] = []
    clock = SystemClock()

    def keep_inserting() -> None:
        with installation.connect() as mine:
            mine.execute("SET lock_timeout = '2s'")
            for job in range(1, 1_000_000):
                began = clock.boot_ns()
                mine.execute(
                    "INSERT INTO cronstream.job_runs (job_id, scheduled_time, attempt, outcome)"
                    " VALUES (%s, now(), 1, 'succeeded')",
                    (job,),
                )
                mine.execute("SELECT count(*) FROM cronstream.job_runs WHERE scheduled_time > now() - interval '1 s'")
                waits.append((clock.boot_ns() - began) / 1e9)
                if over.is_set():
                    return

    thread = threading.Thread(target=keep_inserting)
    thread.start()
    try:
        tidy(installation, tmp_path)
    finally:
        over.set()
        thread.join()
    assert len(Days(connection, tmp_path).exports()) == 4
    assert len(rows(connection, TODAY)) == len(waits) > 10
    assert max(waits) < 2


def test_one_at_a_time(installation: TestInstallation, connection: psycopg.Connection[Any], tmp_path: Path) -> None:
    insert(connection, OLD, range(1, 10))
    with alone(installation.connect) as granted:
        assert granted
        tidy(installation, tmp_path)
    assert partition(connection, OLD) is not None


def test_nobody_holds_history_up_with_a_lock_that_needs_no_right(
    installation: TestInstallation, connection: psycopg.Connection[Any]
) -> None:
    """What keeps others out is the lock of a table: of one that they may read at most."""
    with alone(installation.connect) as granted, connection.transaction():
        insert(connection, OLD, range(1, 10))
        held = connection.execute("SELECT DISTINCT locktype FROM pg_locks WHERE database <> 0").fetchall()
    assert granted
    assert ("relation",) in held
    assert ("advisory",) not in held
    with connection.transaction(force_rollback=True):
        connection.execute("SELECT cronstream.grant_viewing('pg_read_all_stats')")
        connection.execute("SET LOCAL ROLE pg_read_all_stats")
        for lock in (
            "cronstream.retention IN ACCESS SHARE",
            "cronstream.job_runs IN ROW EXCLUSIVE",
            "cronstream.schema_migrations IN ROW EXCLUSIVE",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(f"LOCK TABLE {lock} MODE NOWAIT".encode())
