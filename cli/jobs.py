"""``cronstream jobs``: definitions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click
from psycopg.rows import dict_row

from cli.asking import backfill, run_now
from cli.environment import postgres
from cli.errors import Misuse
from cli.output import json_option, print_fields, print_json, print_table, say, span, text
from cli.references import Job, find
from cli.runs import history, print_runs
from sql.queries import load

queries = load("cli")
_LAST_RUNS = 10
_SHOWN_FIRST = frozenset(
    "job_id tenant name cron every run_at timezone state running next_run_at over version anchor planned_anchor".split()  # noqa: SIM905
)


@click.group()
def jobs() -> None:
    """Show and edit job definitions.

    A JOB is an id, tenant/name, or the bare name of a job of tenant "default"; one whose name is
    digits is default/12.
    """


@jobs.command("list", short_help="List jobs, each with its state and its next run.")
@click.option("--tenant", help="Only this tenant's jobs.")
@click.option("--enabled", is_flag=True, help="Only jobs that are not paused.")
@click.option("--paused", is_flag=True, help="Only paused jobs.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="The most jobs to print."
)
@json_option
def list_jobs(tenant: str | None, enabled: bool, paused: bool, limit: int, as_json: bool) -> None:
    """List jobs in order of tenant and name, each with its state and its next run.

    \b
    STATE     running, or how the run that was heard of last ended; none: no run yet
    NEXT RUN  "none any more": a single time, or an end, that is over; none: no leader has planned it yet
    """
    if enabled and paused:
        raise Misuse("--enabled and --paused leave no job: name one of them, or neither for all jobs")
    parameters = {"tenant": tenant, "enabled": enabled if enabled or paused else None, "most": limit + 1}
    with postgres() as connection, connection.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(queries["list_jobs"], parameters).fetchall()
    shown, more = rows[:limit], len(rows) > limit
    if as_json:
        print_json(shown)
    elif shown:
        header = ("JOB", "TENANT", "NAME", "SCHEDULE", "ZONE", "HANDLER", "STATE", "NEXT RUN (UTC)")
        print_table(
            header,
            (
                (
                    row["job_id"],
                    row["tenant"],
                    row["name"],
                    when(row),
                    row["timezone"],
                    row["handler"],
                    row["state"],
                    next_run(row),
                )
                for row in shown
            ),
        )
    else:
        say("no jobs")
    if more:
        say(f"(the first {limit}; --limit shows more)", err=True)


@jobs.command()
@click.argument("job")
@json_option
def show(job: str, as_json: bool) -> None:
    """Show a job: its definition, its next run and its last runs."""
    with postgres() as connection:
        found = find(connection, job)
        with connection.cursor(row_factory=dict_row) as cursor:
            definition = cursor.execute(queries["show_job"], {"job_id": found.job_id}).fetchone()
        assert definition is not None
        runs = history(connection, _LAST_RUNS, job_id=found.job_id)
    if as_json:
        print_json({**definition, "runs": runs})
        return
    fields: dict[str, object] = {
        "job": definition["job_id"],
        "tenant": definition["tenant"],
        "name": definition["name"],
        "schedule": f"{when(definition)}, {definition['timezone']}",
        "state": definition["state"],
        "running": definition["running"],
        "next run": next_run(definition),
    }
    if definition["every"] is not None:
        fields["counts from"] = _counts_from(definition)
    rest = {key: value for key, value in definition.items() if key not in _SHOWN_FIRST}
    fields.update((key.replace("_", " "), value) for key, value in rest.items())
    print_fields(fields)
    say()
    print_runs(runs, nothing="no runs yet")


@jobs.command()
@click.argument("job", nargs=-1, required=True)
@json_option
def pause(job: tuple[str, ...], as_json: bool) -> None:
    """Pause jobs: they fire no more until they are resumed."""
    _edit(job, "pause_job", ("paused", "was paused already"), as_json)


@jobs.command(short_help="Resume paused jobs: they fire again from now on.")
@click.argument("job", nargs=-1, required=True)
@json_option
def resume(job: tuple[str, ...], as_json: bool) -> None:
    """Resume paused jobs: they fire again from now on; nothing is caught up."""
    _edit(job, "resume_job", ("resumed", "was enabled already"), as_json)


@jobs.command()
@click.argument("job", nargs=-1, required=True)
@json_option
def delete(job: tuple[str, ...], as_json: bool) -> None:
    """Delete jobs. Their history stays."""
    _edit(job, "delete_job", ("deleted", "was deleted before"), as_json)


jobs.add_command(run_now)
jobs.add_command(backfill)


def _edit(references: tuple[str, ...], query: str, words: tuple[str, str], as_json: bool) -> None:
    """All of them or none, each by the function that SQL users call. ``words``: what a job is now, or was before."""
    with postgres() as connection, connection.transaction():
        found = list(dict.fromkeys(find(connection, reference) for reference in references))
        changed = {}
        # In one order, so that two commands about the same jobs do not wait for one another.
        for job in sorted(found):
            row = connection.execute(queries[query], {"tenant": job.tenant, "name": job.name}).fetchone()
            assert row is not None
            changed[job.job_id] = row[0].get("changed", True)
    if as_json:
        print_json([{**_identity(job), words[0]: changed[job.job_id]} for job in found])
        return
    for job in found:
        say(f"{job}: {words[not changed[job.job_id]]}")


def _identity(job: Job) -> dict[str, object]:
    return {"job_id": job.job_id, "tenant": job.tenant, "name": job.name}


def _counts_from(row: dict[str, Any]) -> str:
    if row["anchor"] is not None:
        return text(row["anchor"])
    planned = row["planned_anchor"]
    return "the commit, which no leader has planned yet" if planned is None else f"{text(planned)} (the commit)"


def when(row: dict[str, Any]) -> str:
    """The schedule in a word."""
    if row["cron"] is not None:
        return str(row["cron"])
    if row["every"] is not None:
        every: timedelta = row["every"]
        return f"every {span(every)}"
    return f"once at {text(row['run_at'])}"


def next_run(row: dict[str, Any]) -> str:
    """When it fires next; nothing is known of that before a leader has planned the job."""
    if not row["enabled"]:
        return "paused"
    return "none any more" if row["over"] else text(row["next_run_at"])
