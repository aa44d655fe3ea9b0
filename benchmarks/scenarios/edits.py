"""Single edits through capture: from the commit until the job is held in the wheel."""

from __future__ import annotations

import contextlib
import threading
import time

from benchmarks import fleet, installation
from benchmarks.installation import Bench, BenchError
from benchmarks.leading import PERCENTILES, armed, made, report_cores, start_capture, until_captured
from benchmarks.measure import Processors, percentiles_ms
from benchmarks.report import Report
from benchmarks.scale import seconds
from benchmarks.tables import table

PROCESSES = "coordinator, capture, the four servers; no streams, no workers"
_JOBS = 2_000
_RATE = 100
_SECONDS = 15


def run(report: Report, *, full: bool) -> None:
    """100 edits a second, each its own transaction."""
    during = int(seconds(_SECONDS))
    with made() as bench:
        with bench.connect() as connection:
            fleet.insert_rows(connection, 1, _JOBS, "1 minute")
        start_capture(bench)
        pid = bench.lead()
        bench.until_loaded()
        until_captured(bench)
        processors = Processors(installation.server_pids(bench.home) | {"leader": pid})
        before = armed(bench).size
        _edit(bench, during)
        with contextlib.suppress(BenchError):  # what is not armed by then is missing from the count
            bench.until(lambda: armed(bench).size - before >= _RATE * during, within=20, every=0.2)
        shares = processors.shares()
        missed = bench.figures().get("capture_missed")
        late = armed(bench)[before:]
    values = percentiles_ms(late)
    report.set("edit_to_armed_p50_ms", values["p50_ms"])
    report.set("edit_to_armed_p99_ms", values["p99_ms"])
    report.update("edits", values)
    report.update("edits", {"count": int(late.size), "made": _RATE * during, "capture_missed": missed})
    report.set("edits.processes", PROCESSES)
    report_cores(report, "edits", shares)
    table(
        "edits",
        f"edits: {_RATE} UPDATEs a second, from commit to held in the wheel, through Debezium",
        ("edits", *PERCENTILES, "missed by capture", "leader cores", "connect", "others"),
        [
            (
                int(late.size),
                *(values[key] for key in PERCENTILES),
                missed,
                *(shares[who] for who in ("leader", "connect", "others")),
            )
        ],
    )


def _edit(bench: Bench, during: int) -> None:
    """Single-row UPDATEs at an even pace, from two connections."""

    def edit(lane: int) -> None:
        with bench.connect() as connection:
            began = time.monotonic()
            for number in range(lane, _RATE * during, 2):
                time.sleep(max(0.0, began + number / _RATE - time.monotonic()))
                connection.execute(
                    """UPDATE cronstream.job_definitions SET every = make_interval(secs => %s)
                       WHERE name = %s AND tenant = 'edits'""",
                    [61 + number % 49, f"job-{1 + number % _JOBS}"],
                )

    lanes = [threading.Thread(target=edit, args=(lane,)) for lane in range(2)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
