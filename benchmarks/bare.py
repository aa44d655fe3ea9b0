"""A bare loop beside the dispatcher: it encodes given batches, produces and commits them, and does nothing else."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from confluent_kafka import Producer

from benchmarks.installation import Bench
from cronstream.records import Batch
from cronstream.settings import CoordinatorSettings

Batches = Sequence[tuple[int, Batch]]
"""One transaction: batches, each with its partition."""


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


def cut(pairs: Batches, items: int) -> list[Batches]:
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
