"""Ten million definitions: what the leader holds, how it takes over, and ten minutes of steady state."""

from __future__ import annotations

import os
import time

from benchmarks import fleet, live
from benchmarks.measure import resident_bytes
from benchmarks.report import Report, table

JOBS = int(os.environ.get("BENCH_FULL_JOBS", "10_000_000"))
SECONDS = float(os.environ.get("BENCH_FULL_SECONDS", "600"))


def run(report: Report, *, full: bool) -> None:
    """Rows are written with the user triggers off, indexes made afterwards; see fleet.py."""
    with live.made() as bench:
        began = time.monotonic()
        with bench.connect() as connection:
            start_us, sped_up = fleet.insert_millions(connection, JOBS, live.RATE)
        wrote = time.monotonic() - began
        print(f"  {JOBS:,} definitions written after {wrote:.0f} s", flush=True)
        live.lead_steadily(bench, report, "full", jobs=JOBS, seconds=SECONDS, start_us=start_us, sped_up=sped_up)
        figures = bench.figures()
        resident = resident_bytes(bench.processes["c1"].pid)
        payload = int(figures["loaded"]) * work_bytes()
        bench.lead("c2")
        live.until(lambda: bench.figures("c2"), within=30)
        found = live.follow_kill(bench)
    report.set("full_leader_bytes_beside_payload", resident - payload)
    report.set("full_takeover_first_trigger_s", found["first_trigger_s"])
    report.set("full_horizon_loaded_s", found["horizon_s"])
    report.update("full.takeover", found)
    report.update("full", {"definitions_written_s": wrote, "in_wheel": figures["loaded"], "resident_bytes": resident})
    table(
        f"{JOBS:,} definitions, a horizon of five minutes",
        ("in the wheel", "resident MB", "of it payload MB", "first trigger s", "whole horizon s", "kill to first s"),
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


def work_bytes() -> int:
    """The packed body of one job's runs: payload, tenant, name and policy, as Python holds it."""
    from cronstream.bodies import Policy, Work, pack

    body = pack(Work("fleet", "job-10000000", "log", b"x" * fleet.PAYLOAD_BYTES, Policy()))
    return len(body) + 33
