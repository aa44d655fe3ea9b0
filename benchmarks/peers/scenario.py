"""Schedulers beside us: jobs due at one instant, on the same Postgres, one after another, in one run.

Like with like: what a peer *dispatches* (a message queued, a row deferred, a job handed to its pool)
is held against our dispatch (the broker's acknowledgement), what it *executes* against our end to end
(see ``attempts``). Peers that run jobs in the scheduler's own process do both at once. Each is watched for
ten seconds after the instant, in the full run for a minute and with 1,000, 10,000 and 100,000 jobs; a size
that a peer did not get through in that time ends its turn, and its rate is that of the time it was watched.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial

import numpy as np

from benchmarks import fleet, installation
from benchmarks.installation import BenchError
from benchmarks.leading import Latenesses, TooLate, made, recorded, until_published, whole_second
from benchmarks.measure import percentiles_ms
from benchmarks.peers import environment
from benchmarks.peers.processes import Times
from benchmarks.peers.schedulers import PEERS, Peer, patiently
from benchmarks.report import Report, Value
from benchmarks.scale import jobs
from benchmarks.tables import cell, table

SIZES = (1_000, 10_000, 100_000)
HEAD = ("scheduler", "does", "jobs", "fired", "fires/s", "p50 ms", "p99 ms", "remark")
_WATCH_S = 10.0
_WATCH_FULL_S = 60.0
_APART_S = 3
_SECOND = 1_000_000
Row = tuple[object, ...]


def run(report: Report, *, full: bool) -> None:
    """All peers, then ours; those that only run jobs elsewhere do so in the full run."""
    environment.prepare()
    for name, version in environment.versions().items():
        report.set(f"peers.version_{name}", version)
    watch = _WATCH_FULL_S if full else _WATCH_S
    rows: list[Row] = []
    best: dict[str, float] = {}
    failed: list[str] = []
    for peer in PEERS:
        try:
            rate = _measure(report, peer, SIZES if full else peer.sizes, watch, rows)
        except BenchError as error:
            failed.append(f"{peer.name}: {error}")
            print(f"  {failed[-1]}", flush=True)
            continue
        if rate:
            best[f"{peer.name}.{peer.does}"] = rate
    ours = _ours(report, rows)
    report.set("peers.processes", "the peer, postgres, redis where it needs one; kafka, etcd and connect idle")
    table("peers", f"jobs due at one instant, watched for {watch:.0f} s", HEAD, rows)
    if failed:
        raise BenchError("; ".join(failed))  # the best of the others would flatter us
    for what in ("dispatch", "execute"):
        if found := strongest(best, what):
            report.update("peers", {f"best_{what}": found[0], f"best_{what}_per_s": found[1]})
    if found := strongest(best, "dispatch"):
        report.set("dispatch_ratio_to_best_peer", ours / found[1])


def strongest(rates: Mapping[str, float], what: str) -> tuple[str, float] | None:
    """The best of those that do it, by ``NAME.DOES``: its name and rate."""
    chosen = {name: rate for name, rate in rates.items() if name.endswith((f".{what}", ".both"))}
    return max(chosen.items(), key=lambda pair: pair[1]) if chosen else None


def _measure(report: Report, peer: Peer, sizes: tuple[int, ...], watch: float, rows: list[Row]) -> float | None:
    """Its best rate over the sizes; a size it does not get through ends its turn."""
    best: float | None = None
    for number, size in enumerate(map(jobs, sizes)):
        at, times = patiently(partial(peer.fire, installation.STACK.home, size, watch))
        found = figures(at, times, size)
        remark = "" if len(times) >= size else f"not through in {watch:.0f} s"
        if remark and number + 1 < len(sizes):
            remark += ", larger sizes not tried"
        rows.append(row(peer.name, peer.does, size, found, remark))
        report.update(f"peers.{peer.name}.{peer.does}.{size}", found)
        print("  " + "  ".join(map(cell, rows[-1])), flush=True)
        if found["per_s"]:
            best = max(best or 0.0, float(found["per_s"]))
        if remark:
            break
    return best


def figures(at: float, times: Times, size: int) -> dict[str, Value]:
    """Of the first ``size`` fires: how many, how many a second from the instant to the last, and lateness."""
    late = np.sort(times)[:size] - int(at * 1e6)
    values = percentiles_ms(late)
    per_s = late.size / max(float(late[-1]) / 1e6, 0.001) if late.size else None
    return {"fired": int(late.size), "per_s": per_s, "p50_ms": values["p50_ms"], "p99_ms": values["p99_ms"]}


def row(name: str, does: str, size: int, found: Mapping[str, Value], remark: str = "") -> Row:
    """A line of the table."""
    return (name, does, size, found["fired"], found["per_s"], found["p50_ms"], found["p99_ms"], remark)


def _ours(report: Report, rows: list[Row]) -> float:
    """All sizes on one installation, some seconds apart; the rate at the largest."""
    for ahead in (10, 40, 120):
        try:
            with made() as bench:
                sizes = [jobs(size) for size in SIZES]
                first_us = whole_second(ahead + sum(sizes) / 12_000)
                instants = [first_us + number * _APART_S * _SECOND for number in range(len(sizes))]
                with bench.connect() as connection:
                    for size, at_us in zip(sizes, instants, strict=True):
                        fleet.insert_aligned(connection, size, [at_us])
                bench.lead()
                bench.until_loaded()
                if time.time() + 1 > first_us / 1e6:
                    raise TooLate("the set-up took too long: again, with more time")
                until_published(bench, sum(sizes), within=120)
                ends = [*(at // _SECOND for at in instants[1:]), 2**62]
                found = [recorded(bench, at // _SECOND, end)[0] for at, end in zip(instants, ends, strict=True)]
        except TooLate as late:
            print(f"  {late}", flush=True)
            continue
        return _ours_shown(report, rows, sizes, found)
    raise TooLate("cronstream: not set up two minutes ahead either")


def _ours_shown(report: Report, rows: list[Row], sizes: list[int], found: list[Latenesses]) -> float:
    per_s = 0.0
    for size, late in zip(sizes, found, strict=True):
        if late.size != size:
            raise RuntimeError(f"{late.size:,} of {size:,} acknowledged before the next instant")
        values = figures(0.0, late.astype(np.int64), size)
        rows.append(row("cronstream", "dispatch", size, values))
        report.update(f"peers.cronstream.dispatch.{size}", values)
        per_s = float(values["per_s"] or 0)
    return per_s
