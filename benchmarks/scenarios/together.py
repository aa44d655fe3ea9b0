"""Burst and herd: many jobs due at whole seconds, advances on."""

from __future__ import annotations

import time

from benchmarks import fleet, installation, plots
from benchmarks.installation import Bench, Poller
from benchmarks.leading import (
    PERCENTILES,
    PROCESSES,
    SECOND,
    TooLate,
    draw_curve,
    made,
    recorded,
    report_cores,
    sleep_until,
    until_published,
    whole_second,
)
from benchmarks.measure import Processors, percentiles_ms
from benchmarks.report import Report
from benchmarks.scale import jobs
from benchmarks.tables import table

_BURST_SECONDS = 5
_BURST_EACH = 50_000
_HERD = 250_000
_ALIGNED = 0.4
"""The herd's part of its fleet: the others fall due within the hour after it."""
_LEAST_AHEAD_S = 13
_ROWS_PER_S = 13_000
"""Rows written and loaded in a second, as far as the set-up counts on it."""


def burst(report: Report, *, full: bool) -> None:
    """50,000 due at each of five whole seconds, advances on."""
    _with_time("burst", report, _BURST_SECONDS * jobs(_BURST_EACH), _BURST_SECONDS)


def herd(report: Report, *, full: bool) -> None:
    """250,000 due at one instant, two in five of their fleet; advances on."""
    _with_time("herd", report, jobs(_HERD), 1, others=round(jobs(_HERD) / _ALIGNED * (1 - _ALIGNED)))


def _with_time(name: str, report: Report, count: int, seconds: int, others: int = 0) -> None:
    ahead = _LEAST_AHEAD_S + (count + others / 2) / _ROWS_PER_S
    for factor in (1, 2.5, 6):
        with made() as bench:
            at_us = whole_second(ahead * factor)
            try:
                _write(bench, count, others, instants := [at_us + turn * SECOND for turn in range(seconds)])
                _due_together(bench, report, name, count, others, instants)
            except TooLate as late:
                print(f"  {late}", flush=True)
            else:
                return
    raise TooLate(f"{name}: not set up {ahead * 6:.0f} s ahead either")


def _write(bench: Bench, count: int, others: int, instants: list[int]) -> None:
    with bench.connect() as connection:
        fleet.insert_aligned(connection, count, instants)
        if others:  # half a minute later: what is measured ends before
            fleet.insert_spread(connection, others, others / 3600, instants[-1] + 30 * SECOND)


def _due_together(bench: Bench, report: Report, name: str, count: int, others: int, instants: list[int]) -> None:
    if time.time() + 5 > instants[0] / 1e6:
        raise TooLate("the rows took too long to write: again, with more time")
    pid = bench.lead()
    loaded = bench.until_loaded()
    spare = instants[0] / 1e6 - time.time()
    if spare < 2:
        raise TooLate(f"loading took {loaded:.1f} s, {spare:.1f} s were left: again, with more time")
    poller = Poller(bench)
    sleep_until(instants[0] / 1e6 - 1)
    processors = Processors(installation.server_pids(bench.home) | {"leader": pid})
    sleep_until(instants[-1] / 1e6 + 0.5)
    until_published(bench, count, within=60)
    shares = processors.shares()
    bench.until(lambda: bench.figures().get("writes_waiting") == 0, within=120)
    gone = time.time() - instants[-1] / 1e6
    poller.close()
    late, per_second = recorded(bench)
    assert late.size == count, (late.size, count)
    values = percentiles_ms(late)
    report.set(f"{name}_p99_ms", values["p99_ms"])
    if name == "burst":
        report.set("burst_backlog_gone_s", gone)
    report.update(name, values)
    report.update(name, {"count": count, "backlog_gone_s": gone, "load_s": loaded, "jobs": count + others})
    report.set(f"{name}.processes", PROCESSES)
    report_cores(report, name, shares)
    seconds = f"{len(instants)} whole seconds" if len(instants) > 1 else "one instant"
    among = f", among {count + others:,}" if others else ""
    plots.over_time(f"{name}_over_time", per_second, poller.ages(), f"{count:,} triggers due at {seconds}")
    draw_curve(name, late)
    table(
        name,
        f"{name}: {count:,} jobs due at {seconds}{among}, advances on",
        (*PERCENTILES, "advances done after s", "load s", "leader cores", "postgres", "kafka", "others"),
        [
            (
                *(values[key] for key in PERCENTILES),
                gone,
                loaded,
                *(shares[who] for who in ("leader", "postgres", "kafka", "others")),
            )
        ],
    )
