"""The whole product: from the scheduled time to a worker's start, with streams, sink and a worker on."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from benchmarks import fleet, installation, live
from benchmarks.installation import Bench, until
from benchmarks.measure import Processors, percentiles_ms
from benchmarks.report import Report, table

PROCESSES = "one coordinator, one streams process, the history sink, one worker, the four servers; no capture"


def run(report: Report, *, full: bool) -> None:
    """A steady 1,000/s of the ``log`` handler, end to end, for half a minute."""
    rate, seconds = 1_000, 30
    with live.made() as bench:
        start_us = int(time.time() + 25) * 1_000_000
        with bench.connect() as connection:
            fleet.insert_spread(connection, 60_000, rate, start_us)
            pids = start(bench)
            first = max(start_us / 1e6, time.time()) + 5
            time.sleep(max(0, first - time.time()))
            processors = Processors(installation.server_pids(bench.home) | pids)
            time.sleep(seconds)
            shares = processors.shares()
            time.sleep(3)
            window = (int(first * 1e6), int((first + seconds) * 1e6))
            late = _started(bench, *window)[1]
    values = percentiles_ms(late)
    report.set("end_to_end_p50_ms", values["p50_ms"])
    report.set("end_to_end_p99_ms", values["p99_ms"])
    report.update("end_to_end", values)
    report.update("end_to_end", {"per_s": late.size / seconds, "asked_per_s": rate, "processes": PROCESSES})
    report.update("end_to_end", {f"cores_{who}": share for who, share in shares.items()})
    table(
        f"end to end at {rate:,}/s: from the scheduled time to the handler's start",
        ("runs/s", "p50 ms", "p90 ms", "p99 ms", "p999 ms", "leader", "streams", "worker", "sink", "others"),
        [
            (
                late.size / seconds,
                *(values[key] for key in ("p50_ms", "p90_ms", "p99_ms", "p999_ms")),
                *(shares[who] for who in ("leader", "streams", "worker", "sink", "others")),
            )
        ],
    )


def start(bench: Bench, *, slots: int = 200) -> dict[str, int]:
    """Every process that a run passes through; returns their ids once they are at work."""
    pids = {
        "streams": bench.start("streams-1", "streams"),
        "sink": bench.start("sink-1", "streams.sink"),
        "worker": bench.start("worker-1", "workers", slots=slots),
    }
    pids["leader"] = bench.lead()
    bench.until_loaded()
    time.sleep(8)  # streams and worker join their groups
    return pids


def fire_each(sizes: Sequence[int]) -> dict[int, tuple[int, npt.NDArray[np.int64]]]:
    """So many jobs due at one instant, a size after another: the instant and when each was started."""
    return {size: _fire(size) for size in sizes}


def _fire(size: int) -> tuple[int, npt.NDArray[np.int64]]:
    for ahead in (40 + size / 2_500, 80 + size / 500):
        with live.made() as bench:
            at_us = int(time.time() + ahead) * 1_000_000
            with bench.connect() as connection:
                fleet.insert_aligned(connection, size, [at_us])
            start(bench)
            if time.time() > at_us / 1e6:
                continue  # set up too late: again, with more time
            try:
                until(lambda: _count(bench, at_us) >= size, within=at_us / 1e6 + 60 - time.time(), every=0.5)  # noqa: B023
            except TimeoutError:
                print(f"  end to end: {_count(bench, at_us):,} of {size:,} within the minute", flush=True)
            return at_us, _started(bench, at_us, at_us + 1)[0]
    raise live.TooLate(f"{size:,} jobs end to end: the set-up took too long twice")


def _count(bench: Bench, at_us: int) -> int:
    with bench.connect() as connection:
        row = connection.execute(
            "SELECT count(*) FROM cronstream.job_runs WHERE scheduled_time = cronstream.instant(%s) AND attempt = 1",
            [at_us],
        ).fetchone()
    assert row is not None
    return int(row[0])


def _started(bench: Bench, first_us: int, end_us: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """When runs scheduled in [first, end) were started, and how late."""
    with bench.connect() as connection:
        rows = connection.execute(
            """SELECT cronstream.us(started_at), cronstream.us(scheduled_time) FROM cronstream.job_runs
               WHERE scheduled_time >= cronstream.instant(%s) AND scheduled_time < cronstream.instant(%s)
                 AND started_at IS NOT NULL AND attempt = 1""",
            [first_us, end_us],
        ).fetchall()
    pairs = np.array(rows, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 0] - pairs[:, 1]
