"""``cronstream status``: every part of an installation at a glance, whatever is down."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import click

from cli.environment import settings
from cli.errors import Unasked, explain, one_line
from cli.output import count, json_option, print_json, say, span, text
from cli.probes import (
    probe_alerts,
    probe_capture,
    probe_commands,
    probe_history,
    probe_kafka,
    probe_leader,
    probe_mover,
    probe_postgres,
    probe_streams,
    probe_workers,
)
from cronstream.settings import AlertSettings, CaptureSettings, CoordinatorSettings


@dataclass(frozen=True, slots=True)
class Part:
    """What a probe found, or why it found nothing."""

    name: str
    answer: dict[str, Any] | None
    problem: str | None = None
    asked: bool = True
    """False: what would have told does not answer, and the part may well be."""


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Show who leads, how late it is, and how each part is.

    Exit status 1 when a part is down, or could not be asked; the others are shown all the same.
    """
    chosen = settings(CaptureSettings)
    horizon_seconds = settings(CoordinatorSettings).horizon_seconds
    parts = look(
        {
            "postgres": probe_postgres,
            "kafka": lambda: probe_kafka(chosen),
            "capture": lambda: probe_capture(chosen),
            "leader": lambda: {**probe_leader(chosen), "horizon_seconds": horizon_seconds},
            "streams": lambda: probe_streams(chosen),
            "workers": lambda: probe_workers(chosen),
            "mover": lambda: probe_mover(chosen),
            "history": lambda: probe_history(chosen),
            "alerts": lambda: probe_alerts(settings(AlertSettings)),
            "commands": lambda: probe_commands(chosen),
        }
    )
    down = [part.name for part in parts if part.answer is None and part.asked]
    unasked = [part.name for part in parts if not part.asked]
    if as_json:
        print_json({"ok": not (down or unasked), **{part.name: as_plain(part) for part in parts}})
    else:
        for part in parts:
            show(part)
    if down or unasked:
        said = {"down": down, "could not be asked": unasked}
        said_of = "; ".join(f"{what}: {', '.join(names)}" for what, names in said.items() if names)
        say(f"cronstream: {said_of}", err=True)
        sys.exit(1)


def look(probes: dict[str, Callable[[], dict[str, Any]]]) -> list[Part]:
    """All probes at once, so that parts which do not answer cost their timeout once."""

    def one(name: str) -> Part:
        try:
            return Part(name, probes[name]())
        except Unasked as error:
            return Part(name, None, one_line(error.message), asked=False)
        except Exception as error:
            failure = explain(error)
            # Whatever it is, the other parts are worth their lines; a bug shows its kind.
            return Part(name, None, one_line(failure.message if failure else f"{type(error).__name__}: {error}"))

    with ThreadPoolExecutor(len(probes)) as pool:
        return list(pool.map(one, probes))


def as_plain(part: Part) -> dict[str, Any]:
    """A part in JSON."""
    if part.answer is not None:
        return part.answer
    return {"down" if part.asked else "unknown": part.problem}


def show(part: Part) -> None:
    """Lines of ``part  state  what is known``."""
    if part.answer is None:
        say(f"{part.name:<10}{'DOWN  ' if part.asked else '?     could not be asked: '}{part.problem}")
        return
    first, *others = _LINES[part.name](part.answer)
    say(f"{part.name:<10}ok    {first}")
    for line in others:
        say(f"{'':<16}{line}")


def _postgres(answer: dict[str, Any]) -> list[str]:
    about = "about " if answer["estimated"] else ""
    paused = "" if answer["paused"] is None else f", {answer['paused']:,} of them paused"
    edits = count(answer["open_changes"], "open edit")
    if answer["open_changes"]:
        edits += f", the oldest for {span(answer['oldest_age'])}"
    requests = f"; {count(answer['open_requests'], 'open request')}" if answer["open_requests"] else ""
    lines = [f"{about}{count(answer['definitions'], 'definition')}{paused}; {edits}{requests}"]
    overdue = answer["oldest_overdue"]
    if overdue is not None:
        who = f"job {overdue['job_id']} ({overdue['tenant']}/{overdue['name']})"
        lines.append(f"overdue for longest: {who}, due {text(overdue['next_run_at'])}, {span(overdue['overdue'])} ago")
    return [*lines, "in the last minute: " + _started(answer["started"])]


def _started(started: dict[str, Any]) -> str:
    """How late runs started."""
    if not started["runs"]:
        return "no run started that history knows of"
    late = ", ".join(f"{share} {started[f'lateness_{share}_ms']:,.1f} ms" for share in ("p50", "p99", "max"))
    return f"scheduled time to a run's start {late} ({count(started['runs'], 'run')})"


def _kafka(answer: dict[str, Any]) -> list[str]:
    return [f"topics are there, {count(answer['partitions'], 'partition')}"]


def _capture(answer: dict[str, Any]) -> list[str]:
    return [f"{answer['connector']} {answer['state']}, its task {answer['task']}"]


def _leader(answer: dict[str, Any]) -> list[str]:
    figures = answer["figures"]
    lines = [f"{answer['node']} at {answer['address']}, token {answer['token']}, since {answer['since']}"]
    if figures.get("published") is None:
        return [*lines, "taking office"]
    runs = f"{count(figures['published'], 'trigger')} of schedules and {figures['requested']:,} of requests"
    within = span(timedelta(seconds=answer["horizon_seconds"]))
    return [
        *lines,
        f"{count(figures['loaded'], 'job')} loaded (due within the next {within}); {runs} published in this term",
        "in the last minute: "
        + _quantiles("scheduled time to the broker's acknowledgement", figures, "lateness", "nothing was due"),
        "in the last minute: " + _quantiles("an edit's commit to the leader", figures, "capture_lag", "no edit"),
    ]


def _quantiles(what: str, figures: dict[str, Any], name: str, nothing: str) -> str:
    p50, p99 = (figures.get(f"{name}_{share}_ms") for share in ("p50", "p99"))
    return nothing if p50 is None or p99 is None else f"{what} p50 {p50:.1f} ms, p99 {p99:.1f} ms"


def _streams(answer: dict[str, Any]) -> list[str]:
    figures = ", ".join(f"{name} {value:,}" for name, value in answer["figures"].items())
    lines = [f"at {', '.join(answer['addresses'])}", figures]
    if answer["backlog"] is None:
        return [*lines, "backlog: could not be asked"]
    return [*lines, *(f"{topic}: {_backlog(known)}" for topic, known in answer["backlog"].items())]


def _group(answer: dict[str, Any]) -> list[str]:
    return [f"{', '.join(answer['members'])}; {_backlog(answer)}"]


def _backlog(known: dict[str, Any]) -> str:
    waits = "" if known["oldest_age"] is None else f", the oldest for {span(known['oldest_age'])}"
    behind = {partition: number for partition, number in known.get("backlog_by_partition", {}).items() if number}
    where = f" (by partition: {', '.join(f'{one}: {number:,}' for one, number in behind.items())})" if behind else ""
    return f"backlog {known['backlog']:,}{waits}{where}"


def _alerts(answer: dict[str, Any]) -> list[str]:
    webhook = answer["webhook"]
    if webhook is None:
        return _group(answer)
    return [*_group(answer), f"webhook: {_backlog(webhook)}"]


_LINES: dict[str, Callable[[dict[str, Any]], list[str]]] = {
    "postgres": _postgres,
    "kafka": _kafka,
    "capture": _capture,
    "leader": _leader,
    "streams": _streams,
    "workers": _group,
    "mover": _group,
    "history": _group,
    "alerts": _alerts,
    "commands": _group,
}
