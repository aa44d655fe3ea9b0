"""SIGKILL for the leader of a steady fleet: how long until the next one's first trigger."""

from __future__ import annotations

import time

from benchmarks import fleet
from benchmarks.installation import Bench
from benchmarks.leading import made, recorded, sleep_until, until_published, whole_second
from benchmarks.report import Report, Value
from benchmarks.scale import jobs
from benchmarks.tables import table

_JOBS = 100_000
_RATE = 2_000


def run(report: Report, *, full: bool) -> None:
    """Two coordinators; the one that leads is killed once it has published for a while."""
    count, rate = jobs(_JOBS), jobs(_RATE)
    with made() as bench:
        start_us = whole_second(10 + count / 12_000)
        with bench.connect() as connection:
            fleet.insert_spread(connection, count, rate, start_us)
        bench.lead("c1")
        bench.until_loaded("c1", within=300)
        stand_by(bench)
        sleep_until(start_us / 1e6 + 3)
        until_published(bench, rate, within=60)
        found = follow_kill(bench)
    report.set("takeover_first_trigger_s", found["first_trigger_s"])
    report.set("takeover_gap_s", found["gap_s"])
    report.update("takeover", found)
    table(
        "takeover",
        f"takeover: SIGKILL of the leader of {count:,} jobs at {rate:,}/s, lease of 5 s",
        ("office to first trigger s", "kill to first trigger s", "office to whole horizon s", "latest trigger s"),
        [(found["first_trigger_s"], found["gap_s"], found["horizon_s"], found["latest_trigger_s"])],
    )


def stand_by(bench: Bench) -> None:
    """Start c2, which waits for office; until the leader has caught up with what its start took from everybody."""
    bench.lead("c2")
    bench.until(lambda: bench.figures("c2"), within=30)
    time.sleep(5)


def follow_kill(bench: Bench) -> dict[str, Value]:
    """Kill c1, follow c2 until it has loaded its whole horizon."""
    killed = time.time()
    bench.kill("c1")
    bench.until(lambda: bench.figures("c2").get("first_publish_seconds"), within=120, every=0.02)
    gap = time.time() - killed
    horizon = bench.until_loaded("c2", within=300)
    figures = bench.figures("c2")
    time.sleep(3)
    late, _ = recorded(bench, node="c2")
    return {
        "first_trigger_s": figures["first_publish_seconds"],
        "gap_s": gap,
        "horizon_s": horizon,
        "loaded": figures["loaded"],
        "latest_trigger_s": float(late.max()) / 1e6,
        "processes": "two coordinators, the four servers; no capture, no streams, no workers",
    }
