"""The whole product on one installation: leader, streams, mover, worker and history, and what history says of runs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
from confluent_kafka import Consumer, TopicPartition

from benchmarks import fleet
from benchmarks.installation import Bench
from cronstream.settings import Installation

PROCESSES = (
    "one coordinator, one streams process, the mover, the history sink, one worker, the four servers; no capture"
)
AT_WORK = ("leader", "streams", "mover", "worker", "sink", "postgres", "kafka", "others")
Times = npt.NDArray[np.int64]
_CANARIES = 40
"""Enough that every partition has one."""


def start(bench: Bench, **worker: object) -> dict[str, int]:
    """Every process that a run passes through; returns their ids once runs of every partition came through."""
    at_us = int(time.time()) * 1_000_000
    with bench.connect() as connection:
        fleet.insert_aligned(connection, _CANARIES, [at_us])
        pids = {
            "streams": bench.start("streams-1", "streams"),
            "mover": bench.start("mover-1", "streams.mover"),
            "sink": bench.start("sink-1", "streams.sink"),
            "worker": bench.start("worker-1", "workers", **{"slots": 200, **worker}),
        }
        pids["leader"] = bench.lead()
        bench.until_loaded()
        bench.until(lambda: ended(connection, at_us, at_us + 1) >= _CANARIES, within=60, every=0.2)
    return pids


def ended(connection: psycopg.Connection[Any], first_us: int, end_us: int) -> int:
    """How many first attempts of runs scheduled in [first, end) are in history."""
    row = connection.execute(
        """SELECT count(*) FROM cronstream.job_runs WHERE attempt = 1
           AND scheduled_time >= cronstream.instant(%s) AND scheduled_time < cronstream.instant(%s)""",
        [first_us, end_us],
    ).fetchone()
    assert row is not None
    return int(row[0])


def attempts(bench: Bench, first_us: int, end_us: int, attempt: int = 1) -> npt.NDArray[np.int64]:
    """Attempts of runs scheduled in [first, end), one a row: scheduled, started, finished, in history; microseconds.

    ``finished`` of what did not finish, and what was not started, is left out.
    """
    with bench.connect() as connection:
        rows = connection.execute(
            """SELECT cronstream.us(scheduled_time), cronstream.us(started_at), cronstream.us(finished_at),
                      cronstream.us(recorded_at)
               FROM cronstream.job_runs
               WHERE scheduled_time >= cronstream.instant(%s) AND scheduled_time < cronstream.instant(%s)
                 AND started_at IS NOT NULL AND finished_at IS NOT NULL AND attempt = %s""",
            [first_us, end_us, attempt],
        ).fetchall()
    return np.array(rows, np.int64).reshape(-1, 4)


def log_ends(bench: Bench) -> dict[str, int]:
    """Where triggers, attempts and outcomes end, all partitions together: records and transaction markers."""
    settings = bench.settings(Installation)
    topics = {"triggers": settings.topics.triggers, "attempts": settings.topics.attempts}
    topics["outcomes"] = settings.topics.outcomes
    consumer = Consumer({"bootstrap.servers": settings.kafka, "group.id": "bench-ends", "enable.auto.commit": False})
    try:
        return {
            name: sum(
                consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
                for partition in range(settings.partitions)
            )
            for name, topic in topics.items()
        }
    finally:
        consumer.close()
