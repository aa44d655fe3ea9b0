"""``cronstream runs``: history."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click
import psycopg
from psycopg.rows import dict_row

from cli.environment import postgres
from cli.output import json_option, print_json, print_table, span
from cli.references import Named, find_history
from cronstream.clock import SystemClock, to_datetime
from cronstream.schedule import ScheduleError, parse_every
from cronstream.schedule.instants import parse_instant
from sql.queries import load

queries = load("cli")
ANY_JOB = Named(None, [])
_HEADER = (
    "SCHEDULED (UTC)",
    "JOB",
    "NAME",
    "REQUEST",
    "ATTEMPT",
    "STATE",
    "LATE",
    "PUBLISHED +",
    "TOOK",
    "WORKER",
    "REMARK",
)
OUTCOMES = ("succeeded", "failed", "timed_out", "lost", "skipped", "cancelled")


class Instant(click.ParamType):
    """An instant with its offset, or how long ago: ``90s``, ``15m``, ``2h``, ``7d``."""

    name = "instant|ago"

    def __init__(self, field: str) -> None:
        self._field = field

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return to_datetime(SystemClock().wall_us() - parse_every(value))
        except (ScheduleError, OverflowError):
            pass
        try:
            return to_datetime(parse_instant(self._field, value))
        except (ScheduleError, OverflowError):
            self.fail(f'{value!r} is neither how long ago ("15m", "2h") nor an instant ("2026-03-08T07:00:00Z")')


@click.group()
def runs() -> None:
    """Show the history of runs."""


@runs.command("list")
@click.argument("job", required=False)
@click.option("--state", type=click.Choice(OUTCOMES), help="Only runs that ended so.")
@click.option("--since", type=Instant("since"), help="Only runs scheduled from then on: 15m, 2h, or an instant.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=50, show_default=True, help="The most rows to print."
)
@json_option
def list_runs(job: str | None, state: str | None, since: datetime | None, limit: int, as_json: bool) -> None:
    """List attempts and skipped runs, newest scheduled time first.

    With JOB (an id, or tenant/name) only that job's; also of one that was deleted, or was called so.

    \b
    REQUEST      the number of the request that asked for it; none: the schedule's own
    LATE         from when it was due to the handler's start
    PUBLISHED +  from when it was due to its publication by the leader
    TOOK         the handler

    A run is due at its scheduled time, a backfill's or a redrive's when it was asked for. Retries wait on
    purpose: they are not late.
    """
    with postgres() as connection:
        named, defined = find_history(connection, job) if job is not None else (ANY_JOB, True)
        rows = history(connection, named, outcome=state, since=since, most=limit + 1)
    if as_json:
        print_json(rows[:limit])
    else:
        print_runs(rows[:limit], nothing="no runs")
    if not defined:
        click.echo(f"(no job is {job} any more: this is what history has of it)", err=True)
    if len(rows) > limit:
        click.echo(f"(the newest {limit}; --limit shows more)", err=True)


def history(
    connection: psycopg.Connection[Any],
    named: Named,
    *,
    outcome: str | None = None,
    since: datetime | None = None,
    most: int,
) -> list[dict[str, Any]]:
    """Rows of ``job_runs``."""
    parameters = {**named.parameters, "outcome": outcome, "since": since, "most": most}
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(queries["list_runs"], parameters).fetchall()


def print_runs(rows: list[dict[str, Any]], *, nothing: str) -> None:
    """The rows as a table."""
    if not rows:
        print(nothing)
        return
    print_table(
        _HEADER,
        (
            (
                row["scheduled_time"],
                row["job_id"],
                f"{row['tenant']}/{row['name']}",
                row["request_id"] or None,
                row["attempt"] or None,
                row["outcome"],
                _between(row["due"], row["started_at"]),
                _between(row["due"], row["published_at"]),
                _between(row["started_at"], row["finished_at"]),
                row["worker"],
                _remark(row),
            )
            for row in rows
        ),
    )


def _between(begin: datetime | None, end: datetime | None) -> str | None:
    if begin is None or end is None:
        return None
    milliseconds = (end - begin) / timedelta(milliseconds=1)
    if milliseconds < 1000:
        return f"{milliseconds:.1f}ms"
    return span(timedelta(milliseconds=round(milliseconds)))


def _remark(row: dict[str, Any]) -> str | None:
    remark: str | None = row["error"] or row["reason"]
    if (row["run_count"] or 1) > 1:
        return f"{remark}: {row['run_count']} times since {row['first_time']:%Y-%m-%dT%H:%M:%SZ}"
    return remark
