"""The benchmarks by name."""

from __future__ import annotations

from typing import Protocol

from benchmarks import dispatch, end_to_end, full, live, schedule, wheel
from benchmarks.peers import run as peers
from benchmarks.report import Report


class Benchmark(Protocol):
    """Measures, prints its table and puts its keys into the report."""

    def __call__(self, report: Report, *, full: bool) -> None: ...


ALL: dict[str, Benchmark] = {
    "schedule": schedule.run,
    "wheel": wheel.run,
    "dispatch": dispatch.run,
    "burst": live.burst,
    "herd": live.herd,
    "steady": live.steady,
    "takeover": live.takeover,
    "edits": live.edits,
    "bulk": live.bulk,
    "end_to_end": end_to_end.run,
    "peers": peers.run,
    "full": full.run,
}
USUAL = tuple(name for name in ALL if name != "full")
FULL = ("wheel", "peers", "full")
