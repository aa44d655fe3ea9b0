"""From the wheel to the broker's acknowledgement, in this process, beside a bare loop on the same broker.

The dispatcher, publisher and (on demand) writer are the product's own; only the
term is held without an election, and jobs come from memory. 450,000 jobs fall
due every second, more than can be published, so that it runs as fast as it can.

The bare loop gets the very batches that the dispatcher made, encodes them with the same encoder
and produces them into transactions of the same size, and does nothing else.
"""

from __future__ import annotations

import cProfile
import pstats
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import fleet
from benchmarks.bare import Bare, Batches, cut
from benchmarks.installation import Bench
from benchmarks.leading import made
from benchmarks.measure import Processors, median
from benchmarks.report import Report
from benchmarks.scale import jobs as scaled
from benchmarks.scale import seconds
from benchmarks.tables import table
from coordinator.arrivals import Horizon, Job, JobColumns, Loaded, Mailbox
from coordinator.database_clock import DatabaseClock
from coordinator.dispatcher import Dispatcher
from coordinator.publisher import Publisher
from coordinator.rules import Rule
from coordinator.trust import Term, TrustWindow
from coordinator.writer import Advances, Plans, Writer
from cronstream.bodies import Policy, Work, pack
from cronstream.clock import SystemClock
from cronstream.records import Batch
from cronstream.schedule import schedule_of
from cronstream.settings import CoordinatorSettings

JOBS = 450_000
_SECONDS = 10.0
_BARE_SECONDS = 3.0
_SIZE_SECONDS = 1.5
_SIZES_MS = (5, 20, 50)
_KEPT = 16
_LOAD_S = 14.0
"""How long loading may take before the first second is due."""
PROCESSES = "this process, kafka, postgres, etcd, connect idle; no streams, no workers"


class NoWriter:
    """Takes advances and forgets them: the writer, off."""

    rows_written = 0

    def __init__(self) -> None:
        self.flushed = 0

    def put(self, write: Advances | Plans) -> int:
        self.flushed += 1
        return self.flushed

    def waiting_seconds(self) -> float:
        return 0.0

    def stop(self, drain_seconds: float) -> None:
        """Nothing runs."""


class CountedPublisher(Publisher):
    """Keeps the batches of some transactions for the bare loop, and the seconds spent in publishing."""

    kept: list[Batches]
    seconds: float

    def publish(self, batches: Iterable[tuple[int, Batch]]) -> dict[int, int]:
        batches = list(batches)
        began = time.perf_counter()
        offsets = super().publish(batches)
        self.seconds += time.perf_counter() - began
        if len(self.kept) < _KEPT:
            self.kept.append(batches)
        return offsets


@dataclass(frozen=True, slots=True)
class Run:
    """What one stretch of the dispatcher came to."""

    per_s: float
    in_publish: float
    others: float
    rows_per_s: float
    kept: list[Batches]
    transaction_items: int
    bytes_an_item: float


def run(report: Report, *, full: bool) -> None:
    """Broker and Postgres of the benchmark's own; no coordinator process."""
    count = scaled(JOBS)
    with made() as bench:
        with bench.connect() as connection:
            fleet.insert_aligned(connection, count, [1_900_000_000_000_000])
        held = jobs(count)
        bare = Bare(bench)
        off = dispatch(bench, held, token=1, writing=False)
        before = bare.rate(off.kept, seconds(_BARE_SECONDS))
        on = dispatch(bench, held, token=2, writing=True)
        after = bare.rate(off.kept, seconds(_BARE_SECONDS))
        sizes = _sizes(bare, off.kept)
    loop = median([before, after])
    report.set("wheel_to_ack_per_s", off.per_s)
    report.set("wheel_to_ack_with_writer_per_s", on.per_s)
    report.set("ratio_to_bare_produce", off.per_s / loop)
    report.set("transactional_to_idempotent", median(row[-1] for row in sizes))
    report.update(
        "dispatch",
        {
            "bare_per_s": loop,
            "share_in_publish": off.in_publish,
            "ratio_with_writer": on.per_s / loop,
            "transaction_items": off.transaction_items,
            "bytes_an_item": off.bytes_an_item,
            "cores_others": max(off.others, on.others),
            "writer_rows_per_s": on.rows_per_s,
            "processes": PROCESSES,
        },
    )
    table(
        "dispatch",
        f"wheel to acknowledgement, {seconds(_SECONDS):.0f} s, transactions of at most {off.transaction_items:,}",
        ("what", "triggers/s", "to bare loop", "inside publish", "rows written/s", "others"),
        (
            ("dispatcher, writer off", off.per_s, off.per_s / loop, off.in_publish, None, off.others),
            ("dispatcher, writer on", on.per_s, on.per_s / loop, on.in_publish, on.rows_per_s, on.others),
            ("bare loop: encode, produce, commit", loop, 1.0, None, None, None),
        ),
    )
    head = ("items", "due within ms", "transactional/s", "commit p50 ms", "p99 ms", "idempotent/s", "flush p50 ms")
    table(
        "fence",
        f"the price of the broker's fence: bare loop, {_SIZE_SECONDS} s each",
        (*head, "transactional / idempotent"),
        sizes,
    )
    for items, meant, with_fence, p50, p99, without, flush, ratio in sizes:
        report.update(
            f"dispatch.transaction_{meant}ms",
            {
                "items": items,
                "transactional_per_s": with_fence,
                "commit_p50_ms": p50,
                "commit_p99_ms": p99,
                "idempotent_per_s": without,
                "flush_p50_ms": flush,
                "ratio": ratio,
            },
        )


def jobs(count: int) -> list[Job]:
    """Jobs that fall due every second, a third of them by one shared cron expression; their first time is open."""
    policy = Policy()
    shared = "x" * 245
    draw = random.Random(1)
    cron = schedule_of(cron="* * * * * *")
    made = []
    for number in range(1, count + 1):
        schedule = cron if number % 3 == 0 else schedule_of(every_us=1_000_000, anchor_us=1_796_000_000_000_000)
        pad = shared if number % 10 == 0 else f"{draw.getrandbits(980):0245x}"
        work = Work("fleet", f"job-{number}", "log", f'{{"pad": "{pad}"}}'.encode(), policy)
        made.append(Job(number, 0, 1, Rule(schedule), pack(work)))
    return made


def dispatch(bench: Bench, held: Sequence[Job], *, token: int, writing: bool, profile: bool = False) -> Run:
    """Load the jobs into a dispatcher of that term and let it run for some seconds."""
    settings = bench.settings(CoordinatorSettings, horizon_seconds=3600)
    clock = SystemClock()
    window = TrustWindow(1.0)
    window.renewed(clock.boot_ns(), 3600)
    term = Term(token, window, clock)
    database_clock = DatabaseClock(settings, clock)
    database_clock.read()
    publisher = CountedPublisher(settings, term, clock)
    publisher.kept, publisher.seconds = [], 0.0
    publisher.fence()
    writer: Any = _writer(bench, settings, token, clock, term) if writing else NoWriter()
    mailbox = Mailbox()
    now_us = database_clock.now_us()
    due_us = (now_us // 1_000_000 + 1 + round(_LOAD_S * len(held) / JOBS)) * 1_000_000
    mailbox.put(Horizon(now_us + 3600 * 1_000_000))
    for at in range(0, len(held), 20_000):
        part = [replace(job, next_us=due_us) for job in held[at : at + 20_000]]
        mailbox.put(Loaded(JobColumns.of(part), 0))
    dispatcher = Dispatcher(settings, term, token, database_clock, publisher, writer, mailbox)
    while len(mailbox):
        dispatcher.turn()
    while database_clock.now_us() < due_us + 1_500_000:  # warmed up
        dispatcher.turn()
    processors = Processors({})
    published, in_publish, rows = dispatcher.figures.published, publisher.seconds, writer.rows_written
    profiler = cProfile.Profile() if profile else None
    began = time.perf_counter()
    if profiler:
        profiler.enable()
    while (elapsed := time.perf_counter() - began) < seconds(_SECONDS):
        dispatcher.turn()
    if profiler:
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    done = dispatcher.figures.published - published
    shares = processors.shares()
    rows = writer.rows_written - rows
    writer.stop(drain_seconds=0)
    database_clock.close()
    publisher.close()
    sizes = [sum(len(batch) for _, batch in batches) for batches in publisher.kept]
    return Run(
        per_s=done / elapsed,
        in_publish=(publisher.seconds - in_publish) / elapsed,
        others=shares["others"],
        rows_per_s=rows / elapsed,
        kept=[batches for batches, size in zip(publisher.kept, sizes, strict=True) if size == max(sizes)],
        transaction_items=max(sizes),
        bytes_an_item=sum(len(batch.encode()) for _, batch in publisher.kept[-1]) / sizes[-1],
    )


def _writer(bench: Bench, settings: CoordinatorSettings, token: int, clock: SystemClock, term: Term) -> Writer:
    """The product's writer, on rows whose version is the jobs'."""
    with bench.connect() as connection:
        connection.execute("UPDATE cronstream.coordinator_epoch SET token = %s", [token])
        connection.execute("UPDATE cronstream.schedules SET version = 1")
        connection.execute("VACUUM (ANALYZE) cronstream.schedules")
    writer = Writer(settings, token, clock, unmatched=lambda ids: None, end_term=term.end)
    writer.start()
    return writer


def _sizes(bare: Bare, kept: Sequence[Batches]) -> list[tuple[Any, ...]]:
    """Both kinds of producer with what comes due in so many milliseconds at 150,000 a second."""
    rows = []
    whole = [pair for batches in kept[:4] for pair in batches]
    for meant in _SIZES_MS:
        items = 150 * meant
        transactions = cut(whole, items)
        fenced, p50, p99 = bare.timed(transactions, _SIZE_SECONDS, transactional=True)
        free, flush, _ = bare.timed(transactions, _SIZE_SECONDS, transactional=False)
        rows.append((items, meant, fenced, p50, p99, free, flush, fenced / free))
    return rows
