"""``cronstream status``: every part of an installation at a glance, whatever is down."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import click

from cli.environment import settings
from cli.errors import explain, one_line
from cli.output import json_option, print_json, span, text
from cli.probes import probe_capture, probe_kafka, probe_leader, probe_postgres, probe_streams
from cronstream.settings import CaptureSettings


@dataclass(frozen=True, slots=True)
class Part:
    """What a probe found, or why it found nothing."""

    name: str
    answer: dict[str, Any] | None
    problem: str | None = None


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Show who leads, how late it is, and how each part is.

    Exit status 1 when a part is down; the others are shown all the same.
    """
    chosen = settings(CaptureSettings)
    parts = look(
        {
            "postgres": probe_postgres,
            "kafka": lambda: probe_kafka(chosen),
            "capture": lambda: probe_capture(chosen),
            "leader": lambda: probe_leader(chosen),
            "streams": lambda: probe_streams(chosen),
        }
    )
    down = [part.name for part in parts if part.answer is None]
    if as_json:
        print_json(
            {"ok": not down, **{p.name: p.answer if p.answer is not None else {"down": p.problem} for p in parts}}
        )
    else:
        for part in parts:
            show(part)
    if down:
        click.echo(f"cronstream: down: {', '.join(down)}", err=True)
        sys.exit(1)


def look(probes: dict[str, Callable[[], dict[str, Any]]]) -> list[Part]:
    """All probes at once, so that parts which do not answer cost their timeout once."""

    def one(name: str) -> Part:
        try:
            return Part(name, probes[name]())
        except Exception as error:
            failure = explain(error)
            return Part(
                name, None, one_line(failure.message if isinstance(failure, click.ClickException) else repr(error))
            )

    with ThreadPoolExecutor(len(probes)) as pool:
        return list(pool.map(one, probes))


def show(part: Part) -> None:
    """Lines of ``part  state  what is known``."""
    if part.answer is None:
        print(f"{part.name:<10}DOWN  {part.problem}")
        return
    first, *others = _LINES[part.name](part.answer)
    print(f"{part.name:<10}ok    {first}")
    for line in others:
        print(f"{'':<16}{line}")


def _postgres(answer: dict[str, Any]) -> list[str]:
    about = "about " if answer["estimated"] else ""
    paused = "" if answer["paused"] is None else f", {answer['paused']:,} of them paused"
    edits = f"{answer['open_changes']:,} open edits"
    if answer["open_changes"]:
        edits += f", the oldest for {span(answer['oldest_age'])}"
    lines = [f"{about}{answer['definitions']:,} definitions{paused}; {edits}"]
    overdue = answer["oldest_overdue"]
    if overdue is not None:
        who = f"job {overdue['job_id']} ({overdue['tenant']}/{overdue['name']})"
        lines.append(f"overdue for longest: {who}, due {text(overdue['next_run_at'])}, {span(overdue['overdue'])} ago")
    return lines


def _kafka(answer: dict[str, Any]) -> list[str]:
    return [f"topics are there, {answer['partitions']} partitions"]


def _capture(answer: dict[str, Any]) -> list[str]:
    return [f"{answer['connector']} {answer['state']}, its task {answer['task']}"]


def _leader(answer: dict[str, Any]) -> list[str]:
    figures = answer["figures"]
    lines = [f"{answer['node']} at {answer['address']}, token {answer['token']}, since {answer['since']}"]
    if figures.get("published") is None:
        return [*lines, "taking office"]
    loaded = f"{figures['loaded']:,} jobs loaded, {figures['published']:,} triggers published"
    late = f"lateness p50 {_ms(figures.get('lateness_p50_ms'))}, p99 {_ms(figures.get('lateness_p99_ms'))}"
    return [*lines, loaded, f"{late}; capture lag {_ms(figures.get('capture_lag_ms'))}"]


def _streams(answer: dict[str, Any]) -> list[str]:
    figures = ", ".join(f"{name} {value:,}" for name, value in answer["figures"].items())
    return [f"at {', '.join(answer['addresses'])}", figures]


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f} ms"


_LINES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "postgres": _postgres,
    "kafka": _kafka,
    "capture": _capture,
    "leader": _leader,
    "streams": _streams,
}
