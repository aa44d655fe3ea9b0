"""The tail of the triggers topic at takeover: what was published and perhaps not advanced.

Read from the stored offsets to the end, committed records only. A job fires in
the order of its times, so its newest published time says it all: the row moves
past it. What was published is known, not guessed, before any misfire is judged.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import psycopg
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from coordinator.epoch import NotFit
from coordinator.trust import Term, TermOver
from coordinator.writer import offset_parameters
from cronstream.records import Batch, Kind, PoisonRecord, are_runs
from cronstream.settings import CoordinatorSettings
from sql.queries import load

log = logging.getLogger(__name__)
queries = load("coordinator")

_ROWS_AT_ONCE = 10_000


def newest_published(batches: Iterable[Batch]) -> dict[int, int]:
    """The newest scheduled time of each job's own runs and skips. Requests do not count."""
    newest: dict[int, int] = {}
    for batch in batches:
        own = (batch.request_id == 0) & (are_runs(batch.kind) | (batch.kind == Kind.SKIP))
        for job_id, scheduled_us in zip(batch.job_id[own].tolist(), batch.scheduled[own].tolist(), strict=True):
            if scheduled_us > newest.get(job_id, scheduled_us - 1):
                newest[job_id] = scheduled_us
    return newest


def read_tail(settings: CoordinatorSettings, term: Term, stored: Mapping[int, int]) -> dict[int, int]:
    """Read to the end of every partition; returns the newest published time of each job.

    Raises TermOver when the topic cannot be read.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka,
            "group.id": f"{settings.installation}-coordinator-tail",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            "logger": logging.getLogger("coordinator.librdkafka"),
        }
    )
    topic = settings.topics.triggers
    ended: set[int] = set()
    newest: dict[int, int] = {}
    try:
        # Connected first: assigned too early, it waits half a second.
        found = len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
        if found != settings.partitions:
            raise NotFit(f"{topic} has {found} partitions and CRONSTREAM_PARTITIONS is {settings.partitions}")
        consumer.assign(
            [TopicPartition(topic, partition, stored.get(partition, 0)) for partition in range(settings.partitions)]
        )
        while len(ended) < settings.partitions:
            term.check()
            # A longer wait is waited out whenever fewer than so many records are there.
            for message in consumer.consume(500, timeout=0.02):
                partition, error = message.partition(), message.error()
                assert partition is not None
                if error is None:
                    _merge(newest, message.value(), partition, message.offset())
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(partition)
                else:
                    raise TermOver(f"the tail of {topic} cannot be read: {error.str()}")
    except KafkaException as error:
        raise TermOver(f"the tail of {topic} cannot be read: {error.args[0].str()}") from None
    finally:
        consumer.close()
    return newest


def _merge(newest: dict[int, int], value: bytes | None, partition: int, offset: int | None) -> None:
    try:
        batch = Batch.decode(value)
    except PoisonRecord as error:
        # Not ours: the leader alone writes here. Admission sets it aside.
        log.error("A record on triggers is no batch: %s", error, extra={"partition": partition, "offset": offset})
        return
    for job_id, scheduled_us in newest_published([batch]).items():
        if scheduled_us > newest.get(job_id, scheduled_us - 1):
            newest[job_id] = scheduled_us


def apply_tail(connection: psycopg.Connection[Any], token: int, newest: Mapping[int, int]) -> int:
    """Move rows past what was published; returns how many moved. Raises TermOver when fenced.

    The offsets stay as they are: what was settled of edits that are still open stands on
    the log alone, and the next leader must find it too if this one dies before they are
    planned. The first write after that covers the tail with it.
    """
    moved = 0
    jobs = sorted(newest)
    for start in range(0, len(jobs), _ROWS_AT_ONCE):
        chunk = jobs[start : start + _ROWS_AT_ONCE]
        row = connection.execute(
            queries["apply_tail"],
            {
                "token": token,
                "job_ids": chunk,
                "published_us": [newest[job_id] for job_id in chunk],
                **offset_parameters({}),
            },
        ).fetchone()
        assert row is not None
        if not row[0]:
            raise TermOver("Postgres holds a newer fencing token")
        moved += row[1]
    return moved
