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
from typing import Any

import psycopg

from benchmarks import feeding
from benchmarks.installation import Bench
from benchmarks.leading import made
from benchmarks.measure import cpu_seconds
from benchmarks.pipeline import ended, log_ends
from benchmarks.report import Report
from benchmarks.scale import jobs
from benchmarks.tables import table
from cronstream.clock import SystemClock
from cronstream.dead_letters import Record
from cronstream.settings import Installation
from cronstream.topics import Topics
from streams.stages import Admitting, Settling, Stage

_JOBS = 60_000
_INSTANTS = 2
_PURE = 60_000
_ASKED_SECONDS = 0.2
"""How often the streams process is asked how far it is: each answer costs it a millisecond that is measured too."""
_PROCESSES = "one stage at a time (settlement beside the worker), kafka, postgres, etcd; connect idle; no coordinator"
Row = tuple[object, ...]


def run(report: Report, *, full: bool) -> None:
    """Admit, run, settle, remember."""
    rows: list[Row] = [_pure(report, which) for which in ("admit", "settle")]
    with made() as bench, bench.connect() as connection:
        _real(bench, connection, report, rows)
    report.set("stages.processes", _PROCESSES)
    table(
        "stages",
        "each stage by itself: items for each second of its process' processor time",
        ("stage", "items", "cpu s", "items per core and second", "in s"),
        rows,
    )


class Meter:
    """A process' processor time from a moment on, while it takes items."""

    def __init__(self, pid: int, items: int = 0) -> None:
        self._pid = pid
        self._items = items
        self._spent = cpu_seconds(pid)
        self._began = time.monotonic()

    def read(self, report: Report, key: str, stage: str, items: int) -> Row:
        """The table's line once so many items are through; the rate goes into the report."""
        spent, took = cpu_seconds(self._pid) - self._spent, time.monotonic() - self._began
        done = items - self._items
        per_core = done / spent if done and spent else None
        report.set(key, per_core)
        return (stage, done, spent, per_core, took)


def _real(bench: Bench, connection: psycopg.Connection[Any], report: Report, rows: list[Row]) -> None:
    settings = bench.settings(Installation)
    each = jobs(_JOBS, least=4_000)
    count = each * _INSTANTS
    second_us = int(time.time()) * 1_000_000
    instants = [second_us + number * 1_000_000 for number in range(_INSTANTS)]

    streams = bench.start("streams-1", "streams")
    bench.until(lambda: len(bench.health("streams-1")) >= 2 * settings.partitions, within=60)
    meter = Meter(streams)
    for at_us in instants:
        rounds = feeding.triggers(range(1, each + 1), at_us, settings.partitions)
        feeding.put(settings, settings.topics.triggers, rounds)
    bench.until(lambda: _counted(bench, "admitted") >= count, within=120, every=_ASKED_SECONDS)
    rows.append(meter.read(report, "admit_per_core_s", "admit: streams process", count))

    settling, before = Meter(streams), log_ends(bench)["outcomes"]
    worker = bench.start("worker-1", "workers", slots=200)
    # From its first report on: starting it is not counted.
    bench.until(lambda: log_ends(bench)["outcomes"] > before, within=60)
    meter = Meter(worker, _counted(bench, "succeeded"))
    bench.until(lambda: _counted(bench, "succeeded") >= count, within=180, every=_ASKED_SECONDS)
    rows.append(meter.read(report, "worker_per_core_s", "run: worker with the log handler", count))
    rows.append(settling.read(report, "settle_per_core_s", "settle: streams process, start and end", count))
    bench.stop("worker-1")
    bench.stop("streams-1")

    window = (instants[0], instants[-1] + 1)
    sink = bench.start("sink-1", "streams.sink")
    bench.until(lambda: ended(connection, *window) > 0, within=60, every=0.02)
    meter = Meter(sink, ended(connection, *window))
    bench.until(lambda: ended(connection, *window) >= count, within=120)
    rows.append(meter.read(report, "sink_rows_per_core_s", "remember: sink, rows into Postgres", count))


def _counted(bench: Bench, name: str) -> int:
    return int(bench.figures("streams-1").get(name, 0))


def _pure(report: Report, which: str) -> Row:
    """The stage's ``decide`` over records of 500 items, state in memory."""
    topics = Topics()
    ids = range(1, jobs(_PURE, least=2_000) + 1)
    at_us = int(time.time()) * 1_000_000
    stage: Stage
    if which == "admit":
        rounds, topic = feeding.triggers(ids, at_us, 1), topics.triggers
        stage = Admitting(topics, 600.0, [], lambda _: False, SystemClock())
    else:
        rounds, topic = feeding.successes(ids, at_us, 1), topics.outcomes
        stored: dict[bytes, bytes | None] = {}
        stage = Settling(topics, stored.get, lambda _: None, 100)
    values = [value for records in rounds for _, value in records]
    began, cpu = time.perf_counter(), time.process_time()
    for offset, value in enumerate(values):
        effects = stage.decide([Record(topic, 0, offset, None, value, [])])
        if which == "settle":
            stored.update(effects.rows)
    spent, took = time.process_time() - cpu, time.perf_counter() - began
    per_core = len(ids) / spent
    report.set(f"stages.{which}_decision_per_core_s", per_core)
    return (f"{which}: the decision alone", len(ids), spent, per_core, took)
