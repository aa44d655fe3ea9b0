"""``cronstream runs``: what ran, and what runs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import click
import psycopg
from psycopg.rows import dict_row

from cli.environment import postgres
from cli.errors import Failure, Misuse
from cli.instants import Instant
from cli.output import json_option, print_fields, print_json, print_table, say, span, text
from cli.references import Named, find_history
from cli.requests import find_request
from sql.queries import load

queries = load("cli")
ANY_JOB = Named(None, [])
_MOST_ATTEMPTS = 10_000
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
_ANY = dict.fromkeys(("job_id", "tenants", "names", "request_id", "state", "since", "until"))
STATES = ("running", "succeeded", "failed", "timed_out", "lost", "skipped", "cancelled")
number_option = click.option(
    "--request", "number", type=click.IntRange(0, 2**63 - 1), help="Only runs of this request; 0: the schedule's own."
)


@click.group(short_help="Show what ran, and what runs.")
def runs() -> None:
    """Show what ran and what runs now: the history of runs, and the output of each."""


@runs.command("list")
@click.argument("job", required=False)
@number_option
@click.option("--state", type=click.Choice(STATES), help="Only runs that run, or ended so.")
@click.option("--since", type=Instant("since"), help="Only runs scheduled from then on: 15m, 2h, or an instant.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=50, show_default=True, help="The most rows to print."
)
@json_option
def list_runs(
    job: str | None, number: int | None, state: str | None, since: datetime | None, limit: int, as_json: bool
) -> None:
    """List attempts and skipped runs, newest scheduled time first.

    With JOB (an id, or tenant/name) only that job's; also of one that was deleted, or was called so.

    \b
    REQUEST      the number of the request that asked for it; none: the schedule's own
    STATE        running, or how it ended
    LATE         from when it was due to the handler's start
    PUBLISHED +  from when it was due to its publication by the leader; known at its end
    TOOK         the handler

    A run is due at its scheduled time, a backfill's or a redrive's when it was asked for. Retries wait on
    purpose: they are not late.
    """
    with postgres() as connection:
        named, defined = find_history(connection, job) if job is not None else (ANY_JOB, True)
        chosen: dict[str, Any] = {**named.parameters, "state": state, "since": since}
        if number:
            chosen = of_request(number, find_request(connection, number), chosen)
        elif number == 0:
            chosen["request_id"] = 0
        rows = history(connection, limit + 1, **chosen)
    if as_json:
        print_json(rows[:limit])
    else:
        print_runs(rows[:limit], nothing="no runs")
    if not defined:
        say(f"(no job is {job} any more: this is what history has of it)", err=True)
    if len(rows) > limit:
        say(f"(the newest {limit}; --limit shows more)", err=True)


@runs.command(short_help="Show the attempts of one run, with their output.")
@click.argument("job")
@click.argument("time", type=Instant("time"))
@number_option
@json_option
def show(job: str, time: datetime, number: int | None, as_json: bool) -> None:
    """Show the attempts of one run: when, where, its error and its output.

    TIME is its scheduled time, as `cronstream runs list` prints it. Where a request ran the same time
    again, that run is shown as well, unless --request chooses one.
    """
    with postgres() as connection:
        named, _ = find_history(connection, job)
        chosen = {**named.parameters, "request_id": number, "since": time, "until": time}
        rows = history(connection, _MOST_ATTEMPTS, **chosen)
    if not rows:
        raise Failure(f"no run of {job} is known at {text(time)}: `cronstream runs list {job}` shows those that are")
    rows.sort(key=lambda row: (row["request_id"], row["attempt"]))
    if as_json:
        print_json(rows)
        return
    for index, row in enumerate(rows):
        if index:
            say()
        print_fields(fields(row))
        if row["output"]:
            say(f"output\n{row['output']}")


def of_request(number: int, request: dict[str, Any] | None, chosen: dict[str, Any]) -> dict[str, Any]:
    """What chooses the runs of a request. A forgotten one leaves its job to be named.

    Raises Failure when nothing is known of it, Misuse of one that makes no runs.
    """
    if request is None:
        if chosen["job_id"] is None and chosen["names"] is None:
            raise Failure(f"there is no request {number}: it never was, or is forgotten (then name the job as well)")
        return {**chosen, "request_id": number}
    if request["begins"] is None:
        raise Misuse(f"request {number} is no request for runs: `cronstream requests show {number}` shows it")
    whose = {} if chosen["job_id"] or chosen["names"] else {"job_id": request["job_id"]}
    since = max(filter(None, (chosen["since"], request["begins"])))
    return {**chosen, **whose, "request_id": request["run_request_id"], "since": since, "until": request["ends"]}


def history(connection: psycopg.Connection[Any], most: int, **chosen: Any) -> list[dict[str, Any]]:
    """What ran and what runs; ``chosen`` are parameters of ``list_runs``: one that is left out chooses nothing."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(queries["list_runs"], {**_ANY, **chosen, "most": most}).fetchall()


def print_runs(rows: list[dict[str, Any]], *, nothing: str) -> None:
    """The rows as a table."""
    if not rows:
        say(nothing)
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
                row["state"],
                _between(row["due"], row["started_at"]),
                _between(row["due"], row["published_at"]),
                _took(row),
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


def fields(row: dict[str, Any]) -> dict[str, object]:
    """An attempt as lines, its output aside."""
    shown = {
        "job": f"{row['job_id']} ({row['tenant']}/{row['name']})",
        "scheduled": row["scheduled_time"],
        "request": row["request_id"] or None,
        "attempt": row["attempt"] or None,
        "state": row["state"],
        "published": row["published_at"],
        "started": row["started_at"],
        "finished": row["finished_at"],
        "late": _between(row["due"], row["started_at"]),
        "took": _took(row),
        "worker": row["worker"],
        "remark": _remark(row),
    }
    return {name: value for name, value in shown.items() if value is not None}


def _took(row: dict[str, Any]) -> str | None:
    if row["running_for"] is not None:
        return f"{span(timedelta(seconds=int(row['running_for'].total_seconds())))} so far"
    return _between(row["started_at"], row["finished_at"])


def _remark(row: dict[str, Any]) -> str | None:
    remark: str | None = row["error"] or row["reason"]
    if (row["run_count"] or 1) > 1:
        return f"{remark}: {row['run_count']} times since {row['first_time']:%Y-%m-%dT%H:%M:%SZ}"
    return remark
