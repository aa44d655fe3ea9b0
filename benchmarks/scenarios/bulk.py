"""Bulk edits: whole statements over many jobs through capture, while triggers are due."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

from benchmarks import fleet, installation
from benchmarks.installation import Bench
from benchmarks.leading import all_planned, made, recorded, report_cores, start_capture, until_captured, whole_second
from benchmarks.measure import Processors, percentiles_ms
from benchmarks.report import Report
from benchmarks.scale import jobs
from benchmarks.scenarios.edits import PROCESSES
from benchmarks.tables import table

_EDITED = 100_000
_INSERTED_FULL = 1_000_000
_FIRING = 100_000
_RATE = 1_000
_FIRST_DUE = "1 hour"
"""After the commit. What is inserted is not due meanwhile: a job that is planned late is no trigger that is late."""
_UPDATE = "UPDATE cronstream.job_definitions SET every = '3 minutes' WHERE tenant = 'bulk' AND {}"
_PAUSE = "UPDATE cronstream.job_definitions SET enabled = false WHERE tenant = 'bulk' AND {}"
Row = tuple[object, ...]


def run(report: Report, *, full: bool) -> None:
    """One INSERT and one UPDATE of 100,000 jobs; in the full run an INSERT of a million, and 100,000 paused."""
    edited = jobs(_EDITED)
    inserted = jobs(_INSERTED_FULL) if full else edited
    rows: list[Row] = []
    with made() as bench, bench.connect() as connection:
        fleet.insert_spread(connection, jobs(_FIRING), jobs(_RATE), whole_second(1))
        start_capture(bench)
        pid = bench.lead()
        bench.until_loaded()
        until_captured(bench)
        time.sleep(2)
        chosen = f"name IN (SELECT 'job-' || i FROM generate_series(1, {edited}) i)"
        statements: list[tuple[str, int, Callable[[], object]]] = [
            ("insert", inserted, lambda: fleet.insert_rows(connection, 1, inserted, _FIRST_DUE, "bulk")),
            ("update", edited, lambda: _execute(connection, _UPDATE.format(chosen))),
        ]
        if full:
            statements.append(("pause", edited, lambda: _execute(connection, _PAUSE.format(chosen))))
        for name, count, statement in statements:
            rows.append(_measure(bench, connection, report, pid, name, count, statement))
        missed = bench.figures().get("capture_missed")
    report.set("bulk_capture_missed", missed)
    report.set("bulk.processes", PROCESSES)
    table(
        "bulk",
        f"bulk edits through capture while {jobs(_RATE):,} triggers a second are due",
        (
            "statement",
            "jobs",
            "took s",
            "commit to all planned s",
            "jobs/s",
            "due p50 ms",
            "due p99 ms",
            "leader cores",
            "postgres",
            "others",
        ),
        rows,
    )


def _measure(
    bench: Bench,
    connection: psycopg.Connection[Any],
    report: Report,
    pid: int,
    name: str,
    count: int,
    statement: Callable[[], object],
) -> Row:
    processors = Processors(installation.server_pids(bench.home) | {"leader": pid})
    first = time.time()
    statement()
    committed = time.time()
    bench.until(lambda: all_planned(connection), within=600, every=0.2)
    planned = time.time() - committed
    shares = processors.shares()
    late, _ = recorded(bench, int(first), int(time.time()) + 1)
    values = percentiles_ms(late)
    report.update(
        f"bulk.{name}",
        {
            "jobs": count,
            "statement_s": committed - first,
            "planned_s": planned,
            "due_p50_ms": values["p50_ms"],
            "due_p99_ms": values["p99_ms"],
        },
    )
    report_cores(report, f"bulk.{name}", shares)
    if name == "update":
        report.set("bulk_update_armed_s", planned)
        report.set("bulk_due_p99_ms", values["p99_ms"])
    return (
        name,
        count,
        committed - first,
        planned,
        count / max(planned, 0.001),
        values["p50_ms"],
        values["p99_ms"],
        *(shares[who] for who in ("leader", "postgres", "others")),
    )


def _execute(connection: psycopg.Connection[Any], statement: str) -> None:
    connection.execute(statement)
