"""Steady and end to end: from the scheduled time to the handler's start, with streams, sink and a worker on.

Phases are spread, so that every transaction of the leader has few items: that is
what costs a record for each of them downstream. Small enough to run again while tuning:
``python -m benchmarks end_to_end``; BENCH_END_TO_END_RATE asks for another rate.
"""

from __future__ import annotations

import os
import time

from benchmarks import fleet, installation
from benchmarks.leading import PERCENTILES, made, report_cores, sleep_until, whole_second
from benchmarks.measure import Processors, percentiles_ms
from benchmarks.pipeline import AT_WORK, PROCESSES, attempts, log_ends, start
from benchmarks.report import Report
from benchmarks.scale import jobs, seconds
from benchmarks.tables import table

_RATE = int(os.environ.get("BENCH_END_TO_END_RATE", "1000"))
_SECONDS = 12
_SETTLES_S = 3
_SPREAD_S = 60
"""How long the fleet takes to fire once."""


def run(report: Report, *, full: bool) -> None:
    """A steady 1,000/s of the ``log`` handler."""
    rate, during = jobs(_RATE, least=10), seconds(_SECONDS)
    with made() as bench:
        start_us = whole_second(9)
        with bench.connect() as connection:
            fleet.insert_spread(connection, _SPREAD_S * rate, rate, start_us)
        pids = start(bench)
        first = int(max(start_us / 1e6, time.time()) + _SETTLES_S)
        sleep_until(first)
        processors = Processors(installation.server_pids(bench.home) | pids)
        before = log_ends(bench)
        sleep_until(first + during)
        shares = processors.shares()
        entries = {name: (end - before[name]) / during for name, end in log_ends(bench).items()}
        time.sleep(_SETTLES_S)  # who keeps up has long started and recorded what was due by then
        found = attempts(bench, int(first * 1e6), int((first + during) * 1e6))
    values = percentiles_ms(found[:, 1] - found[:, 0])
    recorded = percentiles_ms(found[:, 3] - found[:, 0])
    per_s = len(found) / during
    report.set("end_to_end_p50_ms", values["p50_ms"])
    report.set("end_to_end_p99_ms", values["p99_ms"])
    report.update("end_to_end", values)
    report.update(
        "end_to_end",
        {
            "per_s": per_s,
            "asked_per_s": rate,
            "in_history_p50_ms": recorded["p50_ms"],
            "in_history_p99_ms": recorded["p99_ms"],
            "processes": PROCESSES,
        },
    )
    report.update("end_to_end", {f"{name}_offsets_per_s": rate for name, rate in entries.items()})
    report_cores(report, "end_to_end", shares)
    table(
        "end_to_end",
        f"end to end at {rate:,}/s, {during:.0f} s: milliseconds from the scheduled time to the handler's start",
        ("in history/s", *PERCENTILES, "in history p50 ms", "in history p99 ms"),
        [(per_s, *(values[key] for key in PERCENTILES), recorded["p50_ms"], recorded["p99_ms"])],
    )
    table(
        "end_to_end_cores",
        "cores by process meanwhile, and offsets a second (records and transaction markers)",
        (*AT_WORK, *entries),
        [(*(shares[who] for who in AT_WORK), *entries.values())],
    )
