"""Each stage after the trigger by itself: items for each second of its process' processor time.

    1  triggers are put on the topic, a streams process admits them
    2  a worker takes the attempts with the ``log`` handler, the streams process settles what it reports
    3  the history sink writes the rows

Processor time hardly depends on what else runs, so stages may overlap in wall time. It is what a stage can
do with a core of its own; what all do together on few cores is ``attempts``. The decisions alone, without
Kafka and tables, are timed beside it in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

from benchmarks import feeding
from benchmarks.installation import Bench, until
from benchmarks.leading import made
from benchmarks.measure import cpu_seconds
from benchmarks.pipeline import ended, log_ends
from benchmarks.report import Report
from benchmarks.scale import jobs
from benchmarks.tables import table
from cronstream.dead_letters import Record
from cronstream.settings import Installation
from cronstream.topics import Topics
from streams.stages import Admitting, Settling, Stage

_JOBS = 60_000
_INSTANTS = 2
_PURE = 60_000
_PROCESSES = "one stage at a time (settlement beside the worker), kafka, postgres, etcd; connect idle; no coordinator"
Row = tuple[object, ...]


def run(report: Report, *, full: bool) -> None:
    """Admit, run, settle, remember."""
    rows: list[Row] = [_pure("admit: the decision alone", report, "admit"), _pure("settle: alone", report, "settle")]
    with made() as bench, bench.connect() as connection:
        _real(bench, connection, report, rows)
    report.set("stages.processes", _PROCESSES)
    table(
        "stages",
        "each stage by itself: items for each second of its process' processor time",
        ("stage", "items", "cpu s", "items per core and second", "in s"),
        rows,
    )


def _real(bench: Bench, connection: psycopg.Connection[Any], report: Report, rows: list[Row]) -> None:
    settings = bench.settings(Installation)
    each = jobs(_JOBS, least=4_000)
    count = each * _INSTANTS
    second_us = int(time.time()) * 1_000_000
    instants = [second_us + number * 1_000_000 for number in range(_INSTANTS)]
    streams = bench.start("streams-1", "streams")
    until(lambda: len(bench.health("streams-1")) == 2 * settings.partitions, within=60, says=bench.tail("streams-1"))

    def measure(key: str, stage: str, pid: int, total: int, done: Callable[[], int]) -> Row:
        """From the first item that came through until the last."""
        until(lambda: done() > 0, within=60, every=0.02, says=f"{stage}: nothing came through")
        first, began, spent = done(), time.monotonic(), cpu_seconds(pid)
        until(lambda: done() >= total, within=120, every=0.05, says=f"{stage}: {done():,} of {total:,}")
        spent, took, items = cpu_seconds(pid) - spent, time.monotonic() - began, total - first
        per_core = items / spent if items and spent else None
        report.set(key, per_core)
        return (stage, items, spent, per_core, took)

    def counted(name: str) -> Callable[[], int]:
        return lambda: int(bench.figures("streams-1").get(name, 0))

    idle = cpu_seconds(streams)
    for at_us in instants:
        feeding.put(
            settings, settings.topics.triggers, feeding.triggers(range(1, each + 1), at_us, settings.partitions)
        )
    began = time.monotonic()
    until(lambda: counted("admitted")() >= count, within=120, says=bench.tail("streams-1"))
    spent = cpu_seconds(streams) - idle
    report.set("admit_per_core_s", count / max(spent, 0.01))
    rows.append(("admit: streams process", count, spent, count / max(spent, 0.01), time.monotonic() - began))

    settling, before = cpu_seconds(streams), log_ends(bench)["outcomes"]
    worker = bench.start("worker-1", "workers", slots=200)
    until(lambda: log_ends(bench)["outcomes"] > before, within=60, says=bench.tail("worker-1"))
    rows.append(measure("worker_per_core_s", "worker: log handler", worker, count, counted("succeeded")))
    spent = cpu_seconds(streams) - settling
    report.set("settle_per_core_s", count / max(spent, 0.01))
    rows.append(("settle: streams process, start and end", count, spent, count / max(spent, 0.01), None))
    bench.stop("worker-1")
    bench.stop("streams-1")

    sink = bench.start("sink-1", "streams.sink")
    rows.append(
        measure(
            "sink_rows_per_core_s",
            "sink: rows into Postgres",
            sink,
            count,
            lambda: ended(connection, instants[0], instants[-1] + 1),
        )
    )


def _pure(title: str, report: Report, which: str) -> Row:
    """The stage's ``decide`` over records of 500 items, state in memory."""
    topics = Topics()
    ids = range(1, jobs(_PURE, least=2_000) + 1)
    at_us = int(time.time()) * 1_000_000
    stage: Stage
    if which == "admit":
        rounds, topic = feeding.triggers(ids, at_us, 1), topics.triggers
        stage = Admitting(topics, 600.0, [])
    else:
        rounds, topic = feeding.successes(ids, at_us, 1), topics.outcomes
        stored: dict[bytes, bytes | None] = {}
        stage = Settling(topics, stored.get)
    values = [value for records in rounds for _, value in records]
    began, cpu = time.perf_counter(), time.process_time()
    for offset, value in enumerate(values):
        effects = stage.decide(Record(topic, 0, offset, None, value, []))
        if which == "settle":
            stored.update(effects.rows)
    spent, took = time.process_time() - cpu, time.perf_counter() - began
    per_core = len(ids) / spent
    report.set(f"stages.{which}_decision_per_core_s", per_core)
    return (title, len(ids), spent, per_core, took)
