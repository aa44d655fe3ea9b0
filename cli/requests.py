"""``cronstream requests``: what was asked for beside the schedules, and how far it is."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
import psycopg
from psycopg.rows import dict_row

from cli.environment import postgres
from cli.errors import Failure
from cli.output import json_option, print_fields, print_json, print_table, say, text
from cli.references import Named, find_asked, unknown
from sql.queries import load

queries = load("cli")
KINDS = ("run-now", "backfill", "redrive", "upsert", "patch", "delete", "pause", "resume", "one-shot", "unknown")
STATES = ("open", "done", "cancelled", "refused")
_HEADER = ("REQUEST", "KIND", "JOB", "NAME", "STATE", "PUBLISHED", "SCHEDULED (UTC)", "ASKED (UTC)", "REMARK")


@click.group(short_help="Show what was asked for, and how far it is.")
def requests() -> None:
    """Show what was asked for: runs now, backfills, redrives and commands.

    A request is named by its number, which run-now and backfill print.
    """


@requests.command("list")
@click.argument("job", required=False)
@click.option("--kind", type=click.Choice(KINDS), help="Only requests of this kind.")
@click.option("--state", type=click.Choice(STATES), help="Only requests that stand so.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=50, show_default=True, help="The most requests to print."
)
@json_option
def list_requests(job: str | None, kind: str | None, state: str | None, limit: int, as_json: bool) -> None:
    """List requests, newest first.

    With JOB (an id, or tenant/name) only that job's.

    \b
    STATE      open until the leader has published all its runs; refused: a command that was
    PUBLISHED  how many of its runs the leader has published, of how many; none: it makes no runs
    SCHEDULED  the scheduled time of its run, or the range of a backfill
    """
    with postgres() as connection, connection.cursor(row_factory=dict_row) as cursor:
        named, defined = find_asked(connection, job) if job is not None else (Named(None, []), True)
        parameters = {**named.parameters, "kind": kind, "state": state, "most": limit + 1}
        rows = cursor.execute(queries["list_requests"], parameters).fetchall()
        if job is not None and not (rows or defined):
            raise unknown(connection, job, ", and no such request for one")
    if as_json:
        print_json(rows[:limit])
    elif rows:
        print_table(_HEADER, map(line, rows[:limit]))
    else:
        say("no requests")
    if len(rows) > limit:
        say(f"(the newest {limit}; --limit shows more)", err=True)


@requests.command()
@click.argument("number", metavar="REQUEST", type=click.IntRange(min=1, max=2**63 - 1))
@json_option
def show(number: int, as_json: bool) -> None:
    """Show a request, and how its runs stand."""
    with postgres() as connection:
        row = find_request(connection, number)
        if row is None:
            raise Failure(f"there is no request {number}: it never was, or is forgotten")
        stand = dict(connection.execute(queries["standing"], row).fetchall())
    if as_json:
        print_json({**row, "standing": stand})
        return
    print_fields(fields(row, stand))
    if row["runs"] is not None:
        say(f"(its runs: cronstream runs list --request {number})", err=True)


def find_request(connection: psycopg.Connection[Any], number: int) -> dict[str, Any] | None:
    """The request, with the first and last scheduled time of its runs. None: nobody asked, or it is forgotten."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(queries["show_request"], {"number": number}).fetchone()


def line(row: dict[str, Any]) -> tuple[object, ...]:
    """A request's cells."""
    return (
        row["number"],
        row["kind"],
        row["job_id"],
        name_of(row),
        row["state"],
        published(row),
        scheduled(row["begins"], row["ends"]),
        row["requested_at"].replace(microsecond=0),
        row["reason"],
    )


def fields(row: dict[str, Any], stand: dict[str, int]) -> dict[str, object]:
    """A request as lines; ``stand``: how many of its runs stand how."""
    shown = {
        "request": row["number"],
        "id": row["id"],
        "kind": row["kind"],
        "job": text(row["job_id"]) + (f" ({name})" if (name := name_of(row)) else ""),
        "state": row["state"],
        "reason": row["reason"],
        "published": published(row),
        "up to": row["cursor"] if row["kind"] == "backfill" and row["published"] else None,
        "scheduled": scheduled(row["begins"], row["ends"]),
        "from attempt": row["attempt"],
        "asked": f"{text(row['requested_at'])} by {row['requested_by']}",
        "ended": row["ended_at"],
        "runs": ", ".join(f"{number:,} {state}" for state, number in stand.items()) or None,
    }
    return {name: value for name, value in shown.items() if value is not None}


def name_of(row: dict[str, Any]) -> str | None:
    """``tenant/name``, with ``-`` for the one that is not known; None where neither is."""
    known = row["tenant"] is not None or row["name"] is not None
    return f"{text(row['tenant'])}/{text(row['name'])}" if known else None


def published(row: dict[str, Any]) -> str | None:
    """``7 of 25``; ``7`` where nobody knows of how many; None of what makes no runs."""
    if row["runs"] is not None:
        return f"{row['published']:,} of {row['runs']:,}"
    return f"{row['published']:,}" if row["kind"] == "backfill" and row["state"] != "refused" else None


def scheduled(begins: datetime | None, ends: datetime | None) -> str | None:
    """One instant, or a range."""
    if begins is None or begins == ends:
        return None if begins is None else text(begins)
    return f"{text(begins)} to {text(ends)}"
