"""Ten million definitions: what the leader holds, ten minutes of steady state, bloat, and how it is taken over."""

from __future__ import annotations

import os
import time

from benchmarks import fleet, installation, statistics
from benchmarks.leading import RATE, made
from benchmarks.measure import resident_bytes
from benchmarks.report import Report
from benchmarks.scale import jobs, seconds
from benchmarks.scenarios import steady, takeover
from benchmarks.tables import table
from cronstream.bodies import Policy, Work, pack

_JOBS = int(os.environ.get("BENCH_FULL_JOBS", "10_000_000"))
_SECONDS = float(os.environ.get("BENCH_FULL_SECONDS", "600"))
_PERIOD_S = 30
"""A smaller fleet fires more slowly: the loader of a new leader must outrun what comes due again."""
_BYTES_OBJECT = 33
"""What Python adds to the bytes of a body."""


def run(report: Report, *, full: bool) -> None:
    """Rows are written with the user triggers off, indexes made afterwards; see fleet.py."""
    count, during = jobs(_JOBS), seconds(_SECONDS)
    home = installation.STACK.home
    statistics.count_statements(home)
    with statistics.with_memory(home) as shared_buffers, made() as bench:
        report.set("full.shared_buffers", shared_buffers)
        statistics.begin_statements(home, bench.database)
        began = time.monotonic()
        with bench.connect() as connection:
            start_us, sped_up = fleet.insert_millions(connection, count, min(RATE, count / _PERIOD_S))
            wrote = time.monotonic() - began
            print(f"  {count:,} definitions written after {wrote:.0f} s", flush=True)
            before = {name: statistics.state_of(connection, name) for name in statistics.HOT}
            statistics.begin_statements(home, bench.database)
            steady.lead(bench, report, "full", count=count, during=during, start_us=start_us, sped_up=sped_up)
            after = {name: statistics.state_of(connection, name) for name in statistics.HOT}
            top = statistics.top_statements(home, bench.database)
        figures = bench.figures()
        resident = resident_bytes(bench.processes["c1"].pid)
        takeover.stand_by(bench)
        found = takeover.follow_kill(bench)
    payload = int(figures["loaded"]) * work_bytes()
    report.set("full_leader_bytes_beside_payload", resident - payload)
    report.set("full_takeover_first_trigger_s", found["first_trigger_s"])
    report.set("full_horizon_loaded_s", found["horizon_s"])
    grown = statistics.growth(before["schedules"], after["schedules"])
    report.set("full_schedules_index_growth", max(size for name, size in grown.items() if name != "table"))
    report.update("full.takeover", found)
    report.update("full", {"definitions_written_s": wrote, "in_wheel": figures["loaded"], "resident_bytes": resident})
    for name in statistics.HOT:
        report.update(f"full.{name}", after[name].since(before[name]))
    table(
        "full_takeover",
        f"{count:,} definitions written in {wrote:.0f} s, a horizon of five minutes",
        (
            "in the wheel",
            "resident MB",
            "of it payload MB",
            "office to first trigger s",
            "whole horizon s",
            "kill to first s",
        ),
        [
            (
                figures["loaded"],
                resident / 1e6,
                payload / 1e6,
                found["first_trigger_s"],
                found["horizon_s"],
                found["gap_s"],
            )
        ],
    )
    rows = [row for name in statistics.HOT for row in statistics.growth_rows(name, before[name], after[name])]
    table("full_bloat", f"before and after {during:.0f} s of steady state", statistics.GROWTH_HEAD, rows)
    table("full_statements", "where Postgres' time went meanwhile", ("s", "calls", "ms each", "rows", "statement"), top)


def work_bytes() -> int:
    """The packed body of one job's runs: payload, tenant, name and policy, as Python holds it."""
    body = pack(Work("fleet", "job-10000000", "log", b"x" * fleet.PAYLOAD_BYTES, Policy()))
    return len(body) + _BYTES_OBJECT
