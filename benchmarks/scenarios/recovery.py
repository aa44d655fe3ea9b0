"""How long a streams process takes to its first admission, with a full window and a million jobs of status behind it.

The window is that of a fleet that fires 8,300 times a second for ten minutes, in the records that a steady
leader writes. It is admitted for real, and a million ends are settled, so that the changelogs are the product's own.
Then the process is killed and started again: with the folder of its tables, and without it, as on another machine.
"""

from __future__ import annotations

import os
import shutil
import time

from benchmarks import feeding
from benchmarks.installation import Bench
from benchmarks.leading import RATE, made
from benchmarks.measure import resident_bytes
from benchmarks.report import Report
from benchmarks.scale import jobs
from benchmarks.tables import table
from cronstream.settings import Installation, StreamsSettings

_WINDOW_S = 600
_STATUS = 1_000_000
_ITEMS = 20
"""Of a record, when 8,300 a second leave in some hundred transactions over four partitions."""
_JOBS = 100_000
_PROCESSES = "one streams process, kafka, etcd; postgres and connect idle; no coordinator, no workers"


def run(report: Report, *, full: bool) -> None:
    """Fill, kill, start, ask for the first admission; twice."""
    admitted, status = jobs(RATE * _WINDOW_S, least=1_000), jobs(_STATUS)
    with made() as bench:
        settings = bench.settings(Installation)
        began = time.monotonic()
        _fill(bench, settings, admitted, status)
        filled = time.monotonic() - began
        print(f"  {admitted:,} admitted and {status:,} settled after {filled:.0f} s", flush=True)
        rows = []
        for what, kept in (("its folder", True), ("an empty folder", False)):
            found = _restart(bench, settings, keep=kept)
            rows.append((what, found, resident_bytes(bench.processes["streams-1"].pid) / 1e6))
            report.set(f"recovery.{'warm' if kept else 'empty'}_first_admission_s", found)
    report.set("recovery_first_admission_s", max(row[1] for row in rows))
    report.update(
        "recovery", {"admitted": admitted, "jobs_of_status": status, "filled_s": filled, "processes": _PROCESSES}
    )
    table(
        "recovery",
        f"a streams process killed with {admitted:,} runs in its window and {status:,} jobs of status",
        ("started again with", "first admission after s", "resident MB"),
        rows,
    )


def _fill(bench: Bench, settings: Installation, admitted: int, status: int) -> None:
    bench.start("streams-1", "streams", dedup_window_seconds=3600)  # filling may take longer than ten minutes
    second_us = int(time.time() - _WINDOW_S) * 1_000_000
    each = min(_JOBS, admitted)
    for number in range(0, admitted, each):
        ids = range(1, min(each, admitted - number) + 1)
        rounds = feeding.triggers(ids, second_us + number * 1_000, settings.partitions, _ITEMS)
        feeding.put(settings, settings.topics.triggers, rounds)
    for first in range(1, status + 1, _JOBS):
        ids = range(first, min(first + _JOBS, status + 1))
        feeding.put(settings, settings.topics.outcomes, feeding.successes(ids, second_us, settings.partitions))
    for counter, count in (("admitted", admitted), ("succeeded", status)):
        bench.until(lambda: bench.figures("streams-1").get(counter, 0) >= count, within=900, every=0.5)  # noqa: B023


def _restart(bench: Bench, settings: Installation, *, keep: bool) -> float:
    """Kill it, put one more trigger on the topic, start it: seconds until that is admitted."""
    bench.kill("streams-1")
    if not keep:
        shutil.rmtree(bench.settings(StreamsSettings, data_dir=bench.folder / "streams-1").data_dir)
    at_us = int(time.time()) * 1_000_000
    ids = range(10_000_000, 10_000_100)
    feeding.put(settings, settings.topics.triggers, feeding.triggers(ids, at_us, settings.partitions))
    began = time.monotonic()
    bench.start("streams-1", "streams", dedup_window_seconds=3600)
    within = float(os.environ.get("BENCH_RECOVERY_WITHIN", "300"))
    bench.until(lambda: bench.figures("streams-1").get("admitted"), within=within)
    return time.monotonic() - began
