"""Runs through the whole product, as fast as it can, beside task queues that run the same no-op.

Jobs of the ``log`` handler fall due at one instant, a size after another, on one installation: scheduled time,
admission, worker, settlement, history. At last jobs that fail fall due together, to see their retries spread.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks import fleet, installation, plots
from benchmarks.failing import receiver
from benchmarks.installation import Bench, BenchError
from benchmarks.leading import TooLate, made, report_cores, sleep_until, whole_second
from benchmarks.measure import Processors
from benchmarks.peers import environment
from benchmarks.peers.queues import QUEUES
from benchmarks.peers.scenario import HEAD, Row, figures, row
from benchmarks.peers.schedulers import patiently
from benchmarks.pipeline import PROCESSES, attempts, ended, start
from benchmarks.report import Report, Value
from benchmarks.scale import jobs
from benchmarks.tables import table

_SIZES = (10_000, 30_000)
_SIZES_FULL = (1_000, 10_000, 100_000)
_LOWEST_RATE = 2_500
"""Runs a second that the instants are set apart for."""
_SET_UP_S = 18
_ROWS_PER_S = 10_000
"""What the time for the set-up counts on."""
_QUEUE_S = 8.0
_FAILING = 10_000
_BACKOFF_S = 5
"""With full jitter the retries spread over so many seconds."""
_SETTLES_S = 6
_SECOND = 1_000_000


def run(report: Report, *, full: bool) -> None:
    """Ours, then the queues."""
    environment.prepare()
    rows: list[Row] = []
    sizes = [jobs(size) for size in (_SIZES_FULL if full else _SIZES)]
    ours = _in_time(report, sizes, rows)
    report.set("attempts_end_to_end_per_s", ours)
    report.set("attempts.processes", PROCESSES)
    execute = report.get("peers.best_execute_per_s")
    if isinstance(execute, int | float):
        report.set("end_to_end_ratio_to_best_peer", ours / execute)
    else:
        report.set("attempts.end_to_end_ratio_missing", "the scenario peers was not run before")
    best, failed = _queues(report, rows)
    table("attempts", "a no-op from its instant, or from being queued, until it has run", HEAD, rows)
    if failed:
        raise BenchError("; ".join(failed))  # the best of the others would flatter us
    strongest = max(best, key=lambda name: best[name])
    report.set("attempts.best_peer", strongest)
    report.set("attempts_ratio_to_best_peer", ours / best[strongest])


def _queues(report: Report, rows: list[Row]) -> tuple[dict[str, float], list[str]]:
    """Each one's rate, and what went wrong with the others."""
    best: dict[str, float] = {}
    failed: list[str] = []
    for queue in QUEUES:
        size = jobs(queue.tasks)
        try:
            at, times = patiently(partial(queue.run, installation.STACK.home, size, _QUEUE_S))
        except BenchError as error:
            failed.append(f"{queue.name}: {error}")
            continue
        found = figures(at, times, size)
        remark = "" if len(times) >= size else f"not through in {_QUEUE_S:.0f} s"
        rows.append(row(queue.name, "execute", size, found, remark))
        report.update(f"attempts.{queue.name}", found)
        if isinstance(found["per_s"], float):
            best[queue.name] = found["per_s"]
        else:
            failed.append(f"{queue.name}: it ran nothing")
    return best, failed


def _in_time(report: Report, sizes: Sequence[int], rows: list[Row]) -> float:
    """Ours, again with more time when the set-up took too long."""
    ahead = _SET_UP_S + sum(sizes) / _ROWS_PER_S
    for factor in (1, 3):
        try:
            with made() as bench:
                return _ours(bench, report, sizes, rows, ahead * factor)
        except TooLate as late:
            print(f"  {late}: again, with more time", flush=True)
    raise TooLate(f"not set up {ahead * 3:.0f} s ahead either")


def _ours(bench: Bench, report: Report, sizes: Sequence[int], rows: list[Row], ahead: float) -> float:
    """Runs a second from the instant until the last is in history, at the best size."""
    failing = jobs(_FAILING)
    first_us = whole_second(ahead)
    gaps = np.cumsum([0, *(2 + size / _LOWEST_RATE for size in sizes)])
    instants = [first_us + int(gap) * _SECOND for gap in gaps]
    with receiver() as url, bench.connect() as connection:
        for size, at_us in zip((*sizes, failing), instants, strict=True):
            fleet.insert_aligned(connection, size, [at_us])
        fleet.make_failing(connection, instants[-1], url, backoff_seconds=_BACKOFF_S)
        pids = start(bench, http_allow="127.0.0.0/8")
        if time.time() > first_us / 1e6:
            raise TooLate("the set-up took too long")
        best = 0.0
        for size, at_us, next_us in zip(sizes, instants, instants[1:], strict=False):
            sleep_until(at_us / 1e6)
            processors = Processors(installation.server_pids(bench.home) | pids)
            while ended(connection, at_us, at_us + 1) < size and time.time() < next_us / 1e6:
                time.sleep(0.2)
            shares = processors.shares()
            best = max(best, _shown(bench, report, rows, size, at_us))
        report_cores(report, "attempts", shares)
        sleep_until(instants[-1] / 1e6 + failing / _LOWEST_RATE + _BACKOFF_S + _SETTLES_S)
        _retries(bench, report, instants[-1], failing)
    return best


def _shown(bench: Bench, report: Report, rows: list[Row], size: int, at_us: int) -> float:
    found = attempts(bench, at_us, at_us + 1)
    started, stored = figures(at_us / 1e6, found[:, 1], size), figures(at_us / 1e6, found[:, 3], size)
    remark = "" if len(found) >= size else "not through before the next instant"
    rows.append(row("cronstream", "execute", size, started, remark))
    rows.append(row("cronstream", "until in history", size, stored, remark))
    report.update(f"attempts.cronstream.{size}", started)
    report.update(f"attempts.cronstream.{size}.in_history", stored)
    return float(stored["per_s"] or 0)


def _retries(bench: Bench, report: Report, at_us: int, count: int) -> None:
    """How second attempts spread after all first ones failed together."""
    first, second = attempts(bench, at_us, at_us + 1), attempts(bench, at_us, at_us + 1, attempt=2)
    values: dict[str, Value] = {"failed": len(first), "tried_again": len(second), "asked": count}
    if not len(second):
        values["missing"] = "no second attempt came"
    else:
        after_s = (second[:, 1] - at_us) / 1e6
        by_second = np.bincount(after_s.astype(int))
        values |= {"most_in_one_second": int(by_second.max()), "backoff_s": _BACKOFF_S}
        report.set("retries_latest_s", float(after_s.max()))
        plots.retries((first[:, 1] - at_us) / 1e6, after_s, f"{len(first):,} jobs failing at one instant")
        table(
            "retries",
            f"{len(first):,} jobs fail at one instant; backoff {_BACKOFF_S} s, full jitter: starts by second",
            ("seconds after the instant", "second attempts"),
            [(second, int(count)) for second, count in enumerate(by_second)],
        )
    report.update("attempts.retries", values)
