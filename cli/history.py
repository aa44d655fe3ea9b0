"""``cronstream history``: days of history in Postgres and in files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import click

import sql
from cli.environment import settings
from cli.errors import Failure, Misuse
from cli.output import count, json_option, print_json, print_table, say
from cronstream.clock import SystemClock, to_datetime
from cronstream.settings import HistorySettings
from streams.days import Days, Export, HistoryError, alone

_NO_FILE: list[Export | None] = [None]


class Day(click.ParamType):
    """A UTC day: ``2026-11-29``."""

    name = "day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        if isinstance(value, date):
            return value
        try:
            return date.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no day: write 2026-11-29")


folder_option = click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the files are; without it CRONSTREAM_HISTORY_FOLDER.",
)


@click.group()
def history() -> None:
    """Show, export and restore days of history.

    The history sink exports days older than CRONSTREAM_HISTORY_DAYS by itself, where
    CRONSTREAM_HISTORY_FOLDER is set; this is for doing it by hand.
    """


@history.command("list")
@json_option
def list_days(as_json: bool) -> None:
    """List the days that Postgres holds, and the files."""
    with _days(Path(), lock=False) as days:
        rows = _by_day(days)
    if as_json:
        print_json(rows)
        return
    header = ("DAY", "IN POSTGRES", "ROWS ABOUT", "BYTES", "FILE", "ROWS", "EXPORTED (UTC)", "KEPT UNTIL (UTC)")
    print_table(
        header,
        (
            (
                _shown(row["day"], row["last_day"]),
                row["partition"] is not None,
                row["rows_estimate"],
                row["bytes"],
                row["file"],
                row["rows"],
                row["exported_at"],
                row["keep_until"],
            )
            for row in rows
        ),
    )


@history.command("export")
@click.argument("wanted", metavar="DAY...", type=Day(), nargs=-1, required=True)
@click.option("--drop", is_flag=True, help="Then take the day's rows out of Postgres; of days that are over alone.")
@folder_option
@json_option
def export(wanted: tuple[date, ...], drop: bool, folder: Path | None, as_json: bool) -> None:
    """Write days into Parquet files, each read back and compared. A file that is there and still right stays.

    Days long past may share a partition: then it goes into one file, and --drop takes it out, as a whole.
    """
    if drop and (unfinished := [day for day in wanted if day >= _today()]):
        raise Misuse(
            f"{unfinished[0]} is not over: its rows are still coming. Leave --drop out, or wait until it is over in UTC"
        )
    answers: list[dict[str, Any]] = []
    with _days(_folder(folder)) as days:
        days.finish()
        for day in wanted:
            held = next((one for one in days.attached() if one["day"] <= day <= one["last_day"]), None)
            if held is None:
                known = ", ".join(one.file for one in days.exports_with(day))
                raise Failure(f"Postgres has no rows of {day}" + (f"; they are in {known}" if known else ""))
            done = (days.let_go if drop else days.export)(held["day"], held["source"])
            span = {"day": f"{done.day}", "last_day": f"{done.last_day}"}
            answers.append({**span, "file": done.file, "rows": done.rows, "checksum": done.checksum})
    if as_json:
        print_json(answers)
    for answer in () if as_json else answers:
        say(
            f"{_shown(answer['day'], answer['last_day'])}: {count(answer['rows'], 'row')} in {answer['file']}"
            + (", dropped" if drop else "")
        )


@history.command("restore")
@click.argument("day", type=Day())
@click.option("--keep-days", type=click.IntRange(1, 3650), default=7, show_default=True, help="How long it stays.")
@folder_option
@json_option
def restore(day: date, keep_days: int, folder: Path | None, as_json: bool) -> None:
    """Load a day's files into job_runs again. Retention lets the day be for --keep-days.

    A file of several days comes back as a whole.
    """
    with _days(_folder(folder)) as days:
        rows = days.restore(day, timedelta(days=keep_days))
    if as_json:
        print_json({"day": f"{day}", "rows": rows})
    else:
        say(f"{day}: in job_runs again, for {count(keep_days, 'day')}: {count(rows, 'row')}")


@contextmanager
def _days(folder: Path, *, lock: bool = True) -> Iterator[Days]:
    """Without a statement's timeout: a day may be large."""
    chosen = settings(HistorySettings)
    with sql.connect(chosen, "history", autocommit=True) as connection:
        days = Days(connection, folder)
        try:
            if not lock:
                yield days
                return
            with alone(lambda: sql.connect(chosen, "history lock")) as granted:
                if not granted:
                    raise Failure("another process exports or restores history right now: try again later")
                yield days
        except HistoryError as error:
            raise Failure(str(error)) from error


def _today() -> date:
    return to_datetime(SystemClock().wall_us()).date()


def _folder(chosen: Path | None) -> Path:
    folder = chosen or settings(HistorySettings).history_folder
    if folder is None:
        raise Misuse("name the folder of the files: --folder, or CRONSTREAM_HISTORY_FOLDER")
    if not folder.is_dir():
        raise Misuse(f"{folder} is no folder: make it first, or name the one that is meant")
    return folder


def _by_day(days: Days) -> list[dict[str, Any]]:
    """One row a day and file, oldest first."""
    partitions = {(one["day"], one["last_day"]): one for one in days.attached()}
    exports: dict[tuple[date, date], list[Export | None]] = defaultdict(list)
    for one in days.exports():
        exports[one.day, one.last_day].append(one)
    return [
        _row(span, partitions.get(span), one)
        for span in sorted(partitions.keys() | exports.keys())
        for one in exports.get(span) or _NO_FILE
    ]


def _shown(day: str, last_day: str) -> str:
    return day if day == last_day else f"{day} to {last_day}"


def _row(span: tuple[date, date], partition: dict[str, Any] | None, export: Export | None) -> dict[str, Any]:
    return {
        "day": f"{span[0]}",
        "last_day": f"{span[1]}",
        "partition": partition and partition["source"],
        "rows_estimate": partition and partition["rows_estimate"],
        "bytes": partition and partition["bytes"],
        "file": export and export.file,
        "rows": export and export.rows,
        "checksum": export and export.checksum,
        "exported_at": export and export.exported_at.replace(microsecond=0),
        "keep_until": export and export.keep_until,
    }
