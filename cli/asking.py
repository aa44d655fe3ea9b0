"""``cronstream jobs run-now`` and ``backfill``: by the same functions that SQL users call."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from cli.environment import postgres
from cli.errors import Failure, Misuse
from cli.instants import NOW, DatabaseInstant, Instant
from cli.output import count, instant, json_option, print_json, say
from cli.references import find
from sql.queries import load

queries = load("cli")
id_option = click.option("--id", "given_id", help="A name of your own for this: a second time it changes nothing.")


@click.command("run-now", short_help="Run jobs once, now, whatever their schedules say.")
@click.argument("job", nargs=-1, required=True)
@id_option
@json_option
def run_now(job: tuple[str, ...], given_id: str | None, as_json: bool) -> None:
    """Run jobs once, now, whatever their schedules say; paused ones as well."""
    if given_id is not None and len(job) > 1:
        raise Misuse("an id is for one job: leave --id out, or name one job")
    with postgres() as connection, connection.transaction():
        found = [find(connection, reference) for reference in job]
        answers = [
            connection.execute(queries["run_now"], {"tenant": one.tenant, "name": one.name, "id": given_id}).fetchone()
            for one in found
        ]
    _report([accepted(answer[0]) for answer in answers if answer is not None], as_json)


@click.command(short_help="Run a job for every scheduled time of a past range.")
@click.argument("job")
@click.option("--begins", type=Instant("begins"), required=True, help="The first instant: 7d, or 2026-01-01T00:00:00Z.")
@click.option(
    "--ends",
    type=DatabaseInstant("ends"),
    default=NOW,
    show_default=True,
    help="The last instant, included: 1h, or an instant.",
)
@id_option
@json_option
def backfill(job: str, begins: datetime, ends: datetime | None, given_id: str | None, as_json: bool) -> None:
    """Run a job for every scheduled time of a range that is over, by its schedule as it is now."""
    if ends is not None and ends < begins:
        raise Misuse(f"--ends {instant(ends)} is before --begins {instant(begins)}: name the earlier one as --begins")
    with postgres() as connection:
        found = find(connection, job)
        parameters = {"tenant": found.tenant, "name": found.name, "begins": begins, "ends": ends, "id": given_id}
        answer = connection.execute(queries["backfill"], parameters).fetchone()
    assert answer is not None
    _report([accepted(answer[0])], as_json)


def _report(answers: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(answers)
        return
    for answer in answers:
        say(told(answer))
    if len(answers) == 1:
        number = answers[0].get("request_id")
        say(f"(follow it: cronstream requests show {number}; cronstream runs list --request {number})", err=True)
    else:
        say("(follow them: cronstream requests list)", err=True)


def accepted(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer. Raises Failure where it is the stored one of a command that was refused."""
    if answer["accepted"]:
        return answer
    was = f"{answer['command']} of {answer['tenant']}/{answer['name']}"
    why = answer["error"]["message"]
    raise Failure(f"the id {answer['id']} was given before, to {was}, which was refused: {why} (choose another --id)")


def told(answer: dict[str, Any]) -> str:
    """The answer to a run-now or a backfill in a line."""
    when = answer.get("scheduled_time") or f"{answer.get('begins')} to {answer.get('ends')}"
    runs = f"{count(answer['runs'], 'run')}, " if answer.get("runs") is not None else ""
    who = f"job {answer.get('job_id')} ({answer['tenant']}/{answer['name']})"
    return f"{who}: {answer['command']} is request {answer.get('request_id')}, {runs}{when}"
