"""What scenarios share that measure a leader as a process.

Lateness is the leader's own: its clock when the broker has acknowledged the
commit of the transaction, minus the scheduled time. Every trigger is counted,
none is sampled (see leader.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg

from benchmarks import installation, leader, plots
from benchmarks.installation import Bench, BenchError
from benchmarks.report import Report

RATE = 8_300
"""Triggers a second of a fleet of ten million jobs, on average."""
PROCESSES = "one coordinator, the four servers (connect idle); no capture, no streams, no workers"
PERCENTILES = ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")
SECOND = 1_000_000
Latenesses = npt.NDArray[np.int32]

_curves: dict[str, Latenesses] = {}


class TooLate(BenchError):
    """Setting up took until after the instant: it is to be tried again with more time."""


@contextmanager
def made() -> Iterator[Bench]:
    """An installation for one scenario."""
    with Bench.made(installation.STACK.home) as bench:
        yield bench


def whole_second(ahead: float) -> int:
    """A whole second so far ahead, in microseconds since the epoch."""
    return int(time.time() + ahead) * SECOND


def sleep_until(at: float) -> None:
    """Until that time in seconds since the epoch."""
    time.sleep(max(0.0, at - time.time()))


def published(bench: Bench, node: str = "c1") -> int:
    """How many triggers that coordinator has published."""
    return int(bench.figures(node).get("published", 0))


def until_published(bench: Bench, count: int, within: float, node: str = "c1") -> None:
    """Wait until so many are. Raises BenchError."""
    bench.until(lambda: published(bench, node) >= count, within=within, every=0.1)


def recorded(bench: Bench, first: int = 0, end: int = 2**62, node: str = "c1") -> tuple[Latenesses, dict[int, int]]:
    """All latenesses acknowledged in the seconds [first, end), in microseconds, and how many in each second."""
    by_second = leader.read(bench.record(node).with_suffix(".lateness"))
    chosen = {second: parts for second, parts in by_second.items() if first <= second < end}
    parts = [part for second in sorted(chosen) for part in chosen[second]]
    late = np.concatenate(parts) if parts else np.empty(0, np.int32)
    return late, {second: sum(map(len, parts)) for second, parts in chosen.items()}


def armed(bench: Bench) -> Latenesses:
    """From the commit of each edit until its job was held in the wheel, in microseconds."""
    by_second = leader.read(bench.record().with_suffix(".armed"))
    parts = [part for second in sorted(by_second) for part in by_second[second]]
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def draw_curve(name: str, late: Latenesses) -> None:
    """Add a scenario to the picture that has them all."""
    if late.size:
        _curves[name] = late
        plots.lateness_cdf(_curves)


def report_cores(report: Report, name: str, shares: Mapping[str, float]) -> None:
    """Busy cores by process, and those of all others on the machine."""
    report.update(name, {f"cores_{who}": share for who, share in shares.items()})


def all_planned(connection: psycopg.Connection[Any]) -> bool:
    """Whether no edit is open any more; counting a million of them would take what is to be measured."""
    row = connection.execute("SELECT EXISTS (SELECT FROM cronstream.job_changes)").fetchone()
    assert row is not None
    return not row[0]


def start_capture(bench: Bench) -> None:
    """Start the process that registers the connector and watches it."""
    bench.start("connectors-1", "connectors")


def until_captured(bench: Bench) -> None:
    """An edit must have come through Debezium, quicker than the audit finds it, and no others be open."""
    with bench.connect() as connection:
        bench.until(lambda: all_planned(connection), within=120, every=0.2)

        def quick() -> bool:
            began = time.monotonic()
            connection.execute(
                """UPDATE cronstream.job_definitions SET catch_up_limit = catch_up_limit + 1
                   WHERE job_id = (SELECT min(job_id) FROM cronstream.job_definitions)"""
            )
            bench.until(lambda: all_planned(connection), within=60, every=0.02)
            return time.monotonic() - began < 0.7

        for within in (120, 30, 30, 30):
            bench.until(quick, within=within, every=0.3)
