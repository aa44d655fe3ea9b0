"""Records as the leader and workers write them, in bulk: a stage's input without those before it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.fleet import PAYLOAD_BYTES
from cronstream.bodies import Policy, Report, Work, pack
from cronstream.records import MAX_ITEMS, Batch, Int64s, Kind
from cronstream.settings import Installation
from cronstream.topics import partitions_of

Records = list[tuple[int, bytes]]
"""Partition and value."""

_TOKEN = 1
_WORK_BODIES = 1000
"""So many bodies in turn: what they hold costs nobody anything here, only their size."""


def triggers(job_ids: Sequence[int], scheduled_us: int, partitions: int, items: int = MAX_ITEMS) -> Iterator[Records]:
    """One run of each job at that instant, so many items a record; a list for each round over the partitions."""
    pad = "x" * (PAYLOAD_BYTES - 11)
    bodies = [
        pack(Work("fleet", f"job-{number}", "log", f'{{"pad": "{pad}"}}'.encode(), Policy()))
        for number in range(_WORK_BODIES)
    ]
    for ids_by_partition in _in_rounds(job_ids, partitions, items):
        yield [
            (partition, _batch(Kind.RUN, ids, scheduled_us, [bodies[int(job) % _WORK_BODIES] for job in ids]))
            for partition, ids in ids_by_partition
        ]


def successes(job_ids: Sequence[int], scheduled_us: int, partitions: int) -> Iterator[Records]:
    """The end of one run of each job, as a worker reports it."""
    for ids_by_partition in _in_rounds(job_ids, partitions, MAX_ITEMS):
        yield [
            (
                partition,
                _batch(
                    Kind.SUCCEEDED,
                    ids,
                    scheduled_us,
                    [
                        pack(Report("fleet", f"job-{job}", "w", scheduled_us, scheduled_us + 10, scheduled_us + 20))
                        for job in ids
                    ],
                ),
            )
            for partition, ids in ids_by_partition
        ]


def put(settings: Installation, topic: str, rounds: Iterator[Records]) -> int:
    """Produce all of it and wait until the broker has it; how many records."""
    producer = Producer(
        {
            "bootstrap.servers": settings.kafka,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 100_000,
        }
    )
    count = 0
    for records in rounds:
        for partition, value in records:
            while True:
                try:
                    producer.produce(topic, value, partition=partition)
                    break
                except BufferError:
                    producer.poll(0.1)
            count += 1
        producer.poll(0)
    if producer.flush(60):
        raise TimeoutError(f"{topic}: the broker did not take all records within a minute")
    return count


def behind(settings: Installation, group: str, topic: str) -> int:
    """How many records of the topic the group has not committed."""
    consumer = Consumer({"bootstrap.servers": settings.kafka, "group.id": group, "enable.auto.commit": False})
    try:
        asked = [TopicPartition(topic, partition) for partition in range(settings.partitions)]
        return sum(
            consumer.get_watermark_offsets(place, timeout=10)[1] - max(place.offset, 0)
            for place in consumer.committed(asked, timeout=10)
        )
    finally:
        consumer.close()


def _in_rounds(job_ids: Sequence[int], partitions: int, items: int) -> Iterator[list[tuple[int, Int64s]]]:
    ids = np.array(job_ids, np.int64)
    of = partitions_of(ids, partitions)
    parts = [ids[of == partition] for partition in range(partitions)]
    for at in range(0, max(map(len, parts)), items):
        yield [(partition, part[at : at + items]) for partition, part in enumerate(parts) if at < len(part)]


def _batch(kind: Kind, ids: Int64s, scheduled_us: int, bodies: Sequence[bytes]) -> bytes:
    count = len(ids)
    return Batch(
        _TOKEN,
        time.time_ns() // 1000,
        None,
        np.full(count, kind, np.uint8),
        ids,
        np.full(count, scheduled_us, np.int64),
        np.zeros(count, np.int64),
        np.ones(count, np.int32),
        np.cumsum([len(body) for body in bodies], dtype=np.uint32),
        b"".join(bodies),
    ).encode()
