"""From the wheel to the broker's acknowledgement, in this process, beside a bare loop on the same broker.

The dispatcher, publisher and (on demand) writer are the product's own; only the
term is held without an election, and jobs come from memory. 450,000 jobs fall
due every second, more than can be published, so that it runs as fast as it can.

The bare loop gets the very batches that the dispatcher made, encodes them with the same encoder
and produces them into transactions of the same size, and does nothing else.
"""

from __future__ import annotations

import cProfile
import itertools
import os
import pstats
import random
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from confluent_kafka import Producer

from benchmarks import fleet, installation
from benchmarks.installation import Bench
from benchmarks.measure import Processors, median
from benchmarks.report import Report, table
from coordinator.arrivals import Horizon, Job, Loaded, Mailbox
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
_SIZES_MS = (5, 10, 20, 50)
Batches = Sequence[tuple[int, Batch]]


class NoWriter:
    """Takes advances and forgets them: the writer, off."""

    def __init__(self) -> None:
        self.flushed = 0

    def put(self, write: Advances | Plans) -> int:
        self.flushed += 1
        return self.flushed

    def waiting_seconds(self) -> float:
        return 0.0


class CountedPublisher(Publisher):
    """Keeps the batches of some transactions for the bare loop, and the seconds spent in publishing."""

    kept: list[Batches]
    seconds: float

    def publish(self, batches: Iterable[tuple[int, Batch]]) -> dict[int, int]:
        batches = list(batches)
        began = time.perf_counter()
        offsets = super().publish(batches)
        self.seconds += time.perf_counter() - began
        if len(self.kept) < 16:
            self.kept.append(batches)
        return offsets


def run(report: Report, *, full: bool) -> None:
    """Broker and Postgres of the benchmark's own; no coordinator process."""
    with Bench.made(installation.STACK.home) as bench:
        with bench.connect() as connection:
            fleet.insert_aligned(connection, JOBS, [1_900_000_000_000_000])
        off = _dispatch(bench, token=1, writing=False)
        bare = Bare(bench)
        before = bare.rate(off["kept"], 4.0)
        again = _dispatch(bench, token=2, writing=False)
        after = bare.rate(off["kept"], 4.0)
        on = _dispatch(bench, token=3, writing=True)
        sizes = _sizes(bench, off["kept"])
    best = median([off["per_s"], again["per_s"]])
    loop = median([before, after])
    report.set("wheel_to_ack_per_s", best)
    report.set("wheel_to_ack_with_writer_per_s", on["per_s"])
    report.set("ratio_to_bare_produce", best / loop)
    report.update(
        "dispatch",
        {
            "bare_per_s": loop,
            "share_in_publish": off["in_publish"],
            "ratio_with_writer": on["per_s"] / loop,
            "transaction_items": off["transaction_items"],
            "bytes_an_item": off["bytes_an_item"],
            "others_cores": max(off["others"], again["others"], on["others"]),
            "writer_rows_per_s": on["rows_per_s"],
            "processes": "this process, kafka, postgres, etcd, connect idle; no streams, no workers",
        },
    )
    table(
        f"wheel to acknowledgement, {_SECONDS:.0f} s, transactions of at most {off['transaction_items']:,}",
        ("what", "triggers/s", "to bare loop", "inside publish", "others' cores"),
        (
            ("dispatcher, writer off", off["per_s"], off["per_s"] / loop, off["in_publish"], off["others"]),
            ("again", again["per_s"], again["per_s"] / loop, again["in_publish"], again["others"]),
            ("dispatcher, writer on", on["per_s"], on["per_s"] / loop, on["in_publish"], on["others"]),
            ("bare loop", loop, 1.0, None, None),
        ),
    )
    table(
        "transaction size: transactional beside merely idempotent, bare loop, 2.5 s each",
        ("items", "meant ms", "transactional/s", "commit p50 ms", "p99 ms", "idempotent/s", "flush p50 ms", "ratio"),
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
    report.set("transactional_to_idempotent", median(row[-1] for row in sizes))


def jobs(count: int, now_us: int) -> list[Job]:
    """Jobs that fall due every second, a third of them by one shared cron expression."""
    policy = Policy()
    shared = "x" * 245
    draw = random.Random(1)
    second = now_us // 1_000_000 * 1_000_000
    cron = schedule_of(cron="* * * * * *")
    made = []
    for number in range(1, count + 1):
        schedule = cron if number % 3 == 0 else schedule_of(every_us=1_000_000, anchor_us=second)
        pad = shared if number % 10 == 0 else f"{draw.getrandbits(980):0245x}"
        work = Work("fleet", f"job-{number}", "log", f'{{"pad": "{pad}"}}'.encode(), policy)
        made.append(Job(number, second, 1, Rule(schedule), pack(work)))
    return made


def _dispatch(bench: Bench, *, token: int, writing: bool, profile: bool = False) -> dict[str, Any]:
    settings = bench.settings(CoordinatorSettings, horizon_seconds=3600)
    clock = SystemClock()
    window = TrustWindow(1.0)
    window.renewed(clock.boot_ns(), 3600)
    term = Term(token, window, clock)
    database_clock = DatabaseClock(settings, clock)
    database_clock.read()
    publisher = CountedPublisher(settings, term)
    publisher.kept, publisher.seconds = [], 0.0
    publisher.fence()
    writer: Any = NoWriter()
    if writing:
        with bench.connect() as connection:
            connection.execute("UPDATE cronstream.coordinator_epoch SET token = %s", [token])
            connection.execute("UPDATE cronstream.schedules SET version = 1")
            connection.execute("VACUUM (ANALYZE) cronstream.schedules")
        writer = Writer(settings, token, clock, unmatched=lambda ids: None, end_term=term.end)
        writer.start()
    mailbox = Mailbox()
    now_us = database_clock.now_us()
    mailbox.put(Horizon(now_us + 3600 * 1_000_000))
    for chunk in _chunks(jobs(JOBS, now_us + 25_000_000)):
        mailbox.put(Loaded(chunk, 0))
    dispatcher = Dispatcher(settings, term, token, database_clock, publisher, writer, mailbox)
    while len(mailbox):
        dispatcher.turn()
    while database_clock.now_us() < now_us + 27_000_000:  # due from the 25th second on
        dispatcher.turn()
    processors = Processors(installation.server_pids(bench.home) | {"bench": os.getpid()})
    published, seconds, rows = dispatcher.published, publisher.seconds, getattr(writer, "rows_written", 0)
    profiler = cProfile.Profile() if profile else None
    began = time.perf_counter()
    if profiler:
        profiler.enable()
    while (elapsed := time.perf_counter() - began) < _SECONDS:
        dispatcher.turn()
    if profiler:
        profiler.disable()
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
    done = dispatcher.published - published
    shares = processors.shares()
    if writing:
        writer.stop(drain_seconds=0)
    database_clock.close()
    sizes = [sum(len(batch) for _, batch in batches) for batches in publisher.kept]
    return {
        "per_s": done / elapsed,
        "in_publish": (publisher.seconds - seconds) / elapsed,
        "others": shares["others"],
        "shares": shares,
        "rows_per_s": (getattr(writer, "rows_written", 0) - rows) / elapsed,
        "kept": [batches for batches, size in zip(publisher.kept, sizes, strict=True) if size == max(sizes)],
        "transaction_items": max(sizes),
        "bytes_an_item": sum(len(b.encode()) for _, b in publisher.kept[-1]) / sizes[-1],
    }


class Bare:
    """A producer and nothing else."""

    def __init__(self, bench: Bench) -> None:
        self._settings = bench.settings(CoordinatorSettings)
        self._numbers = itertools.count()

    def producer(self, *, transactional: bool) -> Producer:
        """Set up as the publisher is; without a transactional id it is merely idempotent."""
        options: dict[str, Any] = {
            "bootstrap.servers": self._settings.kafka,
            "linger.ms": 0,
            "enable.idempotence": True,
            "compression.type": "none",
            "queue.buffering.max.messages": 1_000_000,
            "message.max.bytes": 2_000_000,
        }
        if transactional:
            options["transactional.id"] = f"bare-{next(self._numbers)}-{self._settings.installation}"
        producer = Producer(options)
        producer.list_topics(self._settings.topics.triggers, timeout=10)
        if transactional:
            producer.init_transactions(10)
        return producer

    def rate(self, transactions: Sequence[Batches], seconds: float) -> float:
        """Items a second, transactional."""
        return self.timed(transactions, seconds, transactional=True)[0]

    def timed(
        self, transactions: Sequence[Batches], seconds: float, *, transactional: bool
    ) -> tuple[float, float, float]:
        """Items a second, and the median and p99 of the wait for acknowledgement in milliseconds."""
        producer, topic = self.producer(transactional=transactional), self._settings.topics.triggers
        waits: list[float] = []
        done, began = 0, time.perf_counter()
        counted = False
        for batches in itertools.cycle(transactions):
            if not counted and time.perf_counter() - began > 0.5:  # warmed up
                counted, done, began, waits = True, 0, time.perf_counter(), []
            if counted and time.perf_counter() - began > seconds:
                break
            if transactional:
                producer.begin_transaction()
            for partition, batch in batches:
                producer.produce(topic, batch.encode(), partition=partition)
                done += len(batch)
            asked = time.perf_counter()
            if transactional:
                producer.commit_transaction(10)
            else:
                producer.flush(10)
            waits.append((time.perf_counter() - asked) * 1000)
        elapsed = time.perf_counter() - began
        p50, p99 = np.percentile(waits, [50, 99]).tolist()
        return done / elapsed, p50, p99


def _sizes(bench: Bench, kept: Sequence[Batches]) -> list[tuple[Any, ...]]:
    """Both kinds of producer with what comes due in so many milliseconds at 150,000 a second."""
    bare, rows = Bare(bench), []
    whole = [pair for batches in kept[:4] for pair in batches]
    for meant in _SIZES_MS:
        items = 150 * meant
        transactions = _cut(whole, items)
        fenced, p50, p99 = bare.timed(transactions, 2.5, transactional=True)
        free, flush, _ = bare.timed(transactions, 2.5, transactional=False)
        rows.append((items, meant, fenced, p50, p99, free, flush, fenced / free))
    return rows


def _cut(pairs: Batches, items: int) -> list[Batches]:
    """Transactions of so many items: four partitions each, as the dispatcher fills them."""
    by_partition: dict[int, list[Batch]] = {}
    for partition, batch in pairs:
        by_partition.setdefault(partition, []).append(batch)
    each = max(1, items // len(by_partition))
    found: list[Batches] = []
    for group in zip(*by_partition.values(), strict=False):
        transaction = []
        for partition, batch in zip(by_partition, group, strict=True):
            left = each
            while left > 0:
                part = batch.select(np.arange(min(left, len(batch))))
                transaction.append((partition, part))
                left -= len(part)
        found.append(transaction)
    return found[:8]


def _chunks(made: list[Job]) -> list[list[Job]]:
    return [made[at : at + 20_000] for at in range(0, len(made), 20_000)]
