"""The steady state: triggers at an even rate, phases spread."""

from __future__ import annotations

import time

from benchmarks import fleet, installation, plots
from benchmarks.installation import Bench, Poller
from benchmarks.leading import (
    PERCENTILES,
    PROCESSES,
    RATE,
    draw_curve,
    made,
    recorded,
    report_cores,
    sleep_until,
    whole_second,
)
from benchmarks.measure import Processors, percentiles_ms, resident_bytes
from benchmarks.report import Report
from benchmarks.scale import jobs, seconds
from benchmarks.tables import table

_JOBS = 300_000
_SECONDS = 60


def run(report: Report, *, full: bool) -> None:
    """8,300/s with phases spread, a minute long."""
    count = jobs(_JOBS)
    with made() as bench:
        start_us = whole_second(14 + count / 12_000)
        with bench.connect() as connection:
            sped_up = fleet.insert_spread(connection, count, jobs(RATE), start_us)
        lead(bench, report, "steady", count=count, during=seconds(_SECONDS), start_us=start_us, sped_up=sped_up)


def lead(bench: Bench, report: Report, name: str, *, count: int, during: float, start_us: int, sped_up: float) -> None:
    """Start the leader, let it load, and measure its steady state from some seconds after the first instant on."""
    pid = bench.lead()
    loaded = bench.until_loaded(within=600)
    poller = Poller(bench)
    first = max(start_us / 1e6, time.time()) + 5
    sleep_until(first)
    processors = Processors(installation.server_pids(bench.home) | {"leader": pid})
    sleep_until(first + during)
    shares = processors.shares()
    figures = bench.figures()
    memory = resident_bytes(pid)
    answers = poller.close()
    begins, ends = int(first), int(first + during)
    late, per_second = recorded(bench, begins, ends)
    values = percentiles_ms(late)
    rate = late.size / (ends - begins)
    prefix = "" if name == "steady" else "full_"
    for key in ("p50_ms", "p99_ms", "p999_ms"):
        report.set(f"{prefix}steady_{key}", values[key])
    if name == "steady":
        report.set("steady_leader_cpu_share", shares["leader"])
    oldest = max((figure.get("oldest_write_seconds", 0.0) for _, figure in answers), default=0.0)
    report.update(name, values)
    report.update(
        name,
        {
            "jobs": count,
            "per_s": rate,
            "seconds": during,
            "load_s": loaded,
            "in_wheel": figures.get("loaded"),
            "leader_resident_mb": memory / 1e6,
            "oldest_advance_s": oldest,
            "sped_up": sped_up,
            "processes": PROCESSES,
        },
    )
    report_cores(report, name, shares)
    title = f"{count:,} jobs, {rate:,.0f} triggers a second"
    plots.over_time(f"{name}_over_time", per_second, poller.ages(), title)
    draw_curve(name, late)
    table(
        name,
        f"{name}: {count:,} jobs of the fleet sped up {sped_up:.0f} times, {during:.0f} s",
        (
            "triggers/s",
            *PERCENTILES,
            "leader cores",
            "postgres",
            "kafka",
            "others",
            "oldest advance s",
            "leader MB",
            "load s",
        ),
        [
            (
                rate,
                *(values[key] for key in PERCENTILES),
                *(shares[who] for who in ("leader", "postgres", "kafka", "others")),
                oldest,
                memory / 1e6,
                loaded,
            )
        ],
    )
