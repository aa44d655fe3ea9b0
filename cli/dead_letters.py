"""``cronstream dead-letters``: what was set aside, and what becomes of it."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click
import psycopg
from psycopg.rows import dict_row

from cli.environment import postgres, settings
from cli.errors import Failure, Misuse, explain
from cli.instants import Instant
from cli.letter_text import described, pretty, readable
from cli.output import json_option, print_fields, print_json, print_table, say
from cli.redriving import Redriving
from cli.references import Named, readings
from cronstream.dead_letters import REASONS
from cronstream.settings import Installation
from sql.queries import load
from streams.letters import own_headers

queries = load("dead_letters")
STATES = ("open", "redriven", "discarded")
_MANY = 1_000_000
_Function = TypeVar("_Function", bound=Callable[..., Any])


def filters(function: _Function) -> _Function:
    """The options that choose letters."""
    for option in (
        click.option("--until", type=Instant("until"), help="Only letters set aside before then."),
        click.option(
            "--since", type=Instant("since"), help="Only letters set aside from then on: 15m, 2h, or an instant."
        ),
        click.option("--reason", type=click.Choice(REASONS), help="Only letters of this reason."),
        click.option("--tenant", help="Only letters of one job of this tenant."),
        click.option("--job", help="Only letters of this job: its id, or tenant/name."),
    ):
        function = option(function)
    return function


@click.group("dead-letters")
def letters() -> None:
    """Show what was set aside, try it again, or let it be.

    A letter is named by its number. Letters are there as long as nobody discards them; redriven and
    discarded ones are listed with --state.
    """


@letters.command("list")
@filters
@click.option("--state", type=click.Choice([*STATES, "all"]), default="open", show_default=True)
@click.option(
    "--limit", type=click.IntRange(1, _MANY), default=50, show_default=True, help="The most letters to print."
)
@json_option
def list_letters(state: str, limit: int, as_json: bool, **chosen: Any) -> None:
    """List letters, newest first."""
    with postgres() as connection:
        rows = _find(connection, chosen, state=None if state == "all" else state, most=limit + 1)
    if as_json:
        print_json(rows[:limit])
    elif not rows:
        say("no dead letters")
    else:
        _print(rows[:limit])
    if len(rows) > limit:
        say(f"(the newest {limit}; --limit shows more)", err=True)


@letters.command("show", short_help="Show one letter and the record in it.")
@click.argument("letter", type=int)
@click.option("--raw", is_flag=True, help="Write the record's value as it is, byte for byte, and nothing else.")
@json_option
def show(letter: int, raw: bool, as_json: bool) -> None:
    """Show one letter and the record in it, read as what it is: a batch's items, JSON, text, or bytes."""
    if raw and as_json:
        raise Misuse("--raw is no JSON: leave one of them out")
    with postgres() as connection, connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(queries["show_letter"], {"letter_id": letter}).fetchone()
    if row is None:
        raise Failure(f"there is no dead letter {letter}")
    value: bytes = row.pop("value")
    key: bytes | None = row.pop("key")
    row["identity"] = row["identity"].hex()
    if raw:
        click.get_binary_stream("stdout").write(value)
        return
    items = described(value)
    if as_json:
        encoded = {"key": None if key is None else base64.b64encode(key).decode()}
        print_json({**row, **encoded, "value": base64.b64encode(value).decode(), "items": items})
        return
    headers = own_headers(row.pop("headers"))
    print_fields({**row, "key": None if key is None else readable(key)})
    if headers:
        say()
        print_table(("HEADER", "VALUE"), ((name, readable(of_header)) for name, of_header in headers))
    say()
    if items is None:
        say(pretty(value))
        return
    print_table(
        [name.upper().replace("_", " ") for name in items[0]] if items else [], (list(item.values()) for item in items)
    )


@letters.command("redrive", short_help="Try letters again.")
@click.argument("numbers", metavar="[LETTER]...", type=int, nargs=-1)
@filters
@click.option("--all", "everything", is_flag=True, help="Every open letter.")
@click.option("--force", is_flag=True, help="Records that were no commands, too.")
@json_option
def redrive(numbers: tuple[int, ...], everything: bool, force: bool, as_json: bool, **chosen: Any) -> None:
    """Try letters again: those named, or all open ones that the options choose.

    A run keeps its idempotency key, its attempts are numbered on, and it has its whole budget of them
    again. Any other record is produced to where it stood, as it was.
    """
    _decide("redriven", Redriving.redrive, numbers, everything, as_json, chosen, force=force)


@letters.command("discard", short_help="Let letters be.")
@click.argument("numbers", metavar="[LETTER]...", type=int, nargs=-1)
@filters
@click.option("--all", "everything", is_flag=True, help="Every open letter.")
@json_option
def discard(numbers: tuple[int, ...], everything: bool, as_json: bool, **chosen: Any) -> None:
    """Let letters be: those named, or all open ones that the options choose. Their records stay in the table."""
    _decide("discarded", Redriving.discard, numbers, everything, as_json, chosen)


def _decide(
    done: str,
    act: Callable[[Redriving, int], str],
    numbers: tuple[int, ...],
    everything: bool,
    as_json: bool,
    chosen: dict[str, Any],
    *,
    force: bool = False,
) -> None:
    """One after the other; what fails is told and the rest goes on. Exit status 1 if any failed."""
    narrowed = any(value is not None for value in chosen.values())
    if narrowed and everything:
        raise Misuse("--all takes every letter, and the other options only some: leave out one or the other")
    if bool(numbers) + narrowed + everything != 1:
        raise Misuse("name letters, or choose them by options, or all of them with --all")
    answers: list[dict[str, Any]] = []
    with postgres() as connection:
        redriving = Redriving(connection, settings(Installation), force=force)
        # Oldest first, as they came.
        for number in numbers or [row["letter_id"] for row in reversed(_find(connection, chosen, "open", _MANY))]:
            try:
                answers.append({"letter_id": number, "done": act(redriving, number), "problem": None})
            except Exception as error:
                failure = explain(error)
                if failure is None or connection.broken:
                    raise
                answers.append({"letter_id": number, "done": None, "problem": failure.message})
    failed = [answer for answer in answers if answer["problem"]]
    if as_json:
        print_json(answers)
    else:
        for answer in answers if len(answers) <= 20 else ():
            if answer["done"]:
                say(f"{answer['letter_id']}: {answer['done']}")
        say(f"{len(answers) - len(failed)} {done}" if answers else "no open dead letters like this")
        for answer in failed:
            say(f"cronstream: {answer['problem']}", err=True)
    if failed:
        sys.exit(1)


def _find(
    connection: psycopg.Connection[Any], chosen: dict[str, Any], state: str | None, most: int
) -> list[dict[str, Any]]:
    """Rows of letters, newest first."""
    job: str | None = chosen["job"]
    named = Named(None, []) if job is None else Named(*readings(job))
    if job is not None and named.job_id is None and not named.pairs:
        raise Misuse(f"--job: {job} is no id of a job")
    since: datetime | None = chosen["since"]
    parameters = {
        **named.parameters,
        "tenant": chosen["tenant"],
        "reason": chosen["reason"],
        "since": since,
        "until": chosen["until"],
        "state": state,
        "letters": None,
        "most": most,
    }
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(queries["list_letters"], parameters).fetchall()


def _print(rows: list[dict[str, Any]]) -> None:
    header = (
        "LETTER",
        "SET ASIDE (UTC)",
        "REASON",
        "JOB",
        "NAME",
        "SCHEDULED (UTC)",
        "REQUEST",
        "ATTEMPTS",
        "STATE",
        "RECORD",
        "ERROR",
    )
    print_table(
        header,
        (
            (
                row["letter_id"],
                row["at"].replace(microsecond=0),
                row["reason"],
                _jobs(row["job_ids"]),
                f"{row['tenant']}/{row['name']}" if row["name"] is not None else None,
                row["scheduled_time"],
                row["request_id"] or None,
                row["attempts"],
                row["state"],
                f"{row['topic']}[{row['partition']}]@{row['offset']}",
                row["error"],
            )
            for row in rows
        ),
    )


def _jobs(job_ids: list[int]) -> str | None:
    if len(job_ids) > 1:
        return f"{len(job_ids)} jobs"
    return str(job_ids[0]) if job_ids else None
