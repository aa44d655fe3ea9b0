"""An hour of steady load: what becomes of the hot table and its indexes. Not part of make bench.

BENCH_HOUR_SECONDS (3,600), BENCH_HOUR_JOBS (500,000), BENCH_HOUR_RATE (8,300) and BENCH_HOUR_EVERY (60: a look a
minute) ask for less or more: ``BENCH_HOUR_SECONDS=600 python -m benchmarks hour``.
"""

from __future__ import annotations

import os
import time

from benchmarks import fleet, installation, plots, statistics
from benchmarks.leading import PROCESSES, made, recorded, report_cores, sleep_until, whole_second
from benchmarks.measure import Processors, percentiles_ms
from benchmarks.report import Report
from benchmarks.scale import jobs, seconds
from benchmarks.statistics import TableState
from benchmarks.tables import table

_SECONDS = float(os.environ.get("BENCH_HOUR_SECONDS", "3600"))
_JOBS = int(os.environ.get("BENCH_HOUR_JOBS", "500_000"))
_RATE = int(os.environ.get("BENCH_HOUR_RATE", "8_300"))
_EVERY_S = float(os.environ.get("BENCH_HOUR_EVERY", "60"))
_HOT = "schedules"


def run(report: Report, *, full: bool) -> None:
    """A look each minute at sizes, dead rows and vacuums of ``schedules``."""
    count, rate, during = jobs(_JOBS), jobs(_RATE), seconds(_SECONDS)
    with made() as bench, bench.connect() as connection:
        start_us = whole_second(15 + count / 11_000)
        fleet.insert_spread(connection, count, rate, start_us)
        pid = bench.lead()
        bench.until_loaded(within=600)
        sleep_until(start_us / 1e6 + 5)
        processors = Processors(installation.server_pids(bench.home) | {"leader": pid})
        began = time.time()
        looks = [(0.0, statistics.state_of(connection, _HOT))]
        while (at := looks[-1][0] + min(_EVERY_S, during)) <= during:
            sleep_until(began + at)
            looks.append((at, statistics.state_of(connection, _HOT)))
        shares = processors.shares()
        late, _ = recorded(bench, int(began), int(began + during))
    before, after = looks[0][1], looks[-1][1]
    grown = statistics.growth(before, after)
    report.set("hour_schedules_index_growth", max(size for name, size in grown.items() if name != "table"))
    report.update("hour", percentiles_ms(late))
    report.update("hour", after.since(before))
    report.update("hour", {"seconds": looks[-1][0], "jobs": count, "per_s": late.size / during, "processes": PROCESSES})
    report_cores(report, "hour", shares)
    _draw(looks)
    title = f"{looks[-1][0] / 60:.0f} minutes of {late.size / during:,.0f} triggers a second, {count:,} jobs"
    table("hour", title, statistics.GROWTH_HEAD, statistics.growth_rows(_HOT, before, after))


def _draw(looks: list[tuple[float, TableState]]) -> None:
    curves = {_HOT: [float(look.table_bytes) for _, look in looks]}
    for name in sorted(looks[0][1].indexes):
        curves[name] = [float(look.indexes.get(name, 0)) for _, look in looks]
    plots.sizes_over_time("hour", [at / 60 for at, _ in looks], curves, "Sizes of the hot table under steady load")
