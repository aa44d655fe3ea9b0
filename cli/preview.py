"""``cronstream preview``: when a schedule fires, without any server."""

from __future__ import annotations

import sys

import click

from cli.errors import Failure
from cli.output import json_option, print_json, print_table, say
from cronstream.clock import SystemClock
from cronstream.schedule import parse_every, schedule_of
from cronstream.schedule.cron import hash_key
from cronstream.schedule.instants import parse_instant, utc_text
from cronstream.schedule.notices import notices_of
from cronstream.schedule.preview import MAX_COUNT, preview_line, upcoming

DST_GAP = ("auto", "shift", "skip")
DST_OVERLAP = ("auto", "first", "second", "both")


@click.command(short_help="Show when a schedule fires; needs no server.")
@click.argument("expr", required=False)
@click.option("--every", help="Preview an interval instead: 90s, PT1H30M.")
@click.option("--anchor", help="The instant that the interval is counted from (default: --after).")
@click.option("--tz", default="UTC", show_default=True, help="The job's time zone: an IANA name.")
@click.option("--after", help="Show what comes strictly after this instant (default: now).")
@click.option("--count", type=click.IntRange(0, MAX_COUNT), default=5, show_default=True, help="How many.")
@click.option("--dst-gap", type=click.Choice(DST_GAP), default="auto", show_default=True)
@click.option("--dst-overlap", type=click.Choice(DST_OVERLAP), default="auto", show_default=True)
@click.option("--tenant", default="", help="The job's tenant, which H depends on.")
@click.option("--name", default="", help="The job's name, which H depends on.")
@click.option("--jsonl", is_flag=True, help="Answer each line of JSON on standard input with one line.")
@json_option
def preview(
    expr: str | None,
    every: str | None,
    anchor: str | None,
    tz: str,
    after: str | None,
    count: int,
    dst_gap: str,
    dst_overlap: str,
    tenant: str,
    name: str,
    jsonl: bool,
    as_json: bool,
) -> None:
    """Show the next instants of a cron expression, in UTC and in the job's zone.

    \b
    cronstream preview "30 2 * * *" --tz America/New_York --after 2026-03-07T00:00:00Z
    cronstream preview --every 90s --count 3
    echo '{"id": 1, "expr": "@daily", "after": "2026-01-01T00:00:00Z"}' | cronstream preview --jsonl

    Instants that a clock change moves from a wall time that does not exist are marked.

    A line of --jsonl without "after" is answered from now on, as the option is.
    """
    if jsonl:
        if expr is not None or every is not None:
            raise click.UsageError("--jsonl reads its expressions from standard input")
        _answer_lines()
        return
    if (expr is None) == (every is None):
        raise click.UsageError("give either a cron EXPR (in quotes) or --every")
    after_us = SystemClock().wall_us() if after is None else parse_instant("after", after)
    schedule = schedule_of(
        cron=expr,
        every_us=None if every is None else parse_every(every),
        anchor_us=None if every is None else after_us if anchor is None else parse_instant("anchor", anchor),
        timezone=tz,
        dst_gap=dst_gap,
        dst_overlap=dst_overlap,
        tenant=tenant,
        name=name,
    )
    fires = upcoming(schedule, tz, after_us, count)
    notices: tuple[str, ...] = ()
    if expr is not None:
        key = hash_key(tenant, name) if tenant or name else ""
        notices = notices_of(expr, tz, now_us=after_us, dst_gap=dst_gap, dst_overlap=dst_overlap, hash_key=key)
    if as_json:
        print_json(
            {
                "expr": expr,
                "every": every,
                "tz": tz,
                "after": utc_text(after_us),
                "fires": [fire.utc for fire in fires],
                "instants": [{"utc": fire.utc, "local": fire.local, "moved": fire.moved} for fire in fires],
                "notices": list(notices),
            }
        )
        return
    if fires:
        if tz == "UTC":
            print_table(("UTC",), ((fire.utc,) for fire in fires))
        else:
            print_table(
                ("UTC", tz, ""),
                ((fire.utc, fire.local, "moved by a clock change" if fire.moved else "") for fire in fires),
            )
    elif count:
        raise Failure(f"nothing fires after {utc_text(after_us)}")
    for notice in notices:
        say(f"note: {notice}", err=True)


def _answer_lines() -> None:
    # Bytes that are no UTF-8 make a line that is no JSON, and never an end of the whole. Every line has
    # its answer, and at once: a program may wait for it before it asks again.
    for raw in sys.stdin.buffer:
        now_us = SystemClock().wall_us()
        say(preview_line(raw.decode("utf-8", "replace").rstrip("\r\n"), now_us=now_us))
        sys.stdout.flush()
