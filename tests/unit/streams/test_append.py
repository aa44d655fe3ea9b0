"""What is produced together lands in its order, in as few batches as hold it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError, MessageSizeTooLargeError
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch

from streams.kafka import BATCH_BYTES, RECORD_BYTES, Produced, append

TOPIC = "t"


class FakeKafka:
    """aiokafka's producer: takes batches of its own making, each whole."""

    def __init__(self) -> None:
        self.batches: list[list[Produced]] = []
        self.end = 100
        self.fails_from: int | None = None

    def create_batch(self) -> BatchBuilder:
        return BatchBuilder(BATCH_BYTES, 0)

    async def send_batch(self, batch: BatchBuilder, topic: str, *, partition: int) -> asyncio.Future[Any]:
        assert (topic, partition) == (TOPIC, 3)
        assert batch.closed()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if len(self.batches) == self.fails_from:
            future.set_exception(KafkaConnectionError("gone"))
            return future
        records = [(one.key, one.value, list(one.headers)) for one in DefaultRecordBatch(bytes(batch._build()))]
        self.batches.append(records)
        future.set_result(SimpleNamespace(offset=self.end))
        self.end += len(records)
        return future


def appended(kafka: FakeKafka, records: list[Produced]) -> int | None:
    return asyncio.run(append(kafka, TOPIC, 3, records))


def test_records_share_a_batch_and_the_last_offset_is_told() -> None:
    kafka = FakeKafka()
    records: list[Produced] = [(b"k", b"v", [("h", b"1")]), (None, b"w", []), (b"gone", None, [])]
    assert appended(kafka, records) == 102
    assert kafka.batches == [records]
    assert appended(kafka, records[:1]) == 103


def test_nothing_is_produced_of_nothing() -> None:
    kafka = FakeKafka()
    assert appended(kafka, []) is None
    assert kafka.batches == []


def test_what_one_batch_does_not_hold_goes_on_in_the_next() -> None:
    kafka = FakeKafka()
    records: list[Produced] = [(bytes([number]), bytes(BATCH_BYTES // 3), []) for number in range(5)]
    assert appended(kafka, records) == 104
    assert [len(batch) for batch in kafka.batches] == [2, 2, 1]
    assert [record for batch in kafka.batches for record in batch] == records


def test_a_record_larger_than_a_batch_has_one_of_its_own() -> None:
    kafka = FakeKafka()
    records: list[Produced] = [(b"a", b"", []), (b"b", bytes(BATCH_BYTES + 1), []), (b"c", b"", [])]
    appended(kafka, records)
    assert [[key for key, _, _ in batch] for batch in kafka.batches] == [[b"a"], [b"b"], [b"c"]]


def test_after_a_failure_nothing_more_is_sent() -> None:
    kafka = FakeKafka()
    kafka.fails_from = 1
    with pytest.raises(KafkaConnectionError):
        appended(kafka, [(bytes([number]), bytes(BATCH_BYTES // 2), []) for number in range(5)])
    assert len(kafka.batches) == 1


def test_too_large_a_record_is_refused_before_anything_is_sent() -> None:
    kafka = FakeKafka()
    with pytest.raises(MessageSizeTooLargeError):
        appended(kafka, [(b"a", b"", []), (b"b", bytes(RECORD_BYTES), [])])
    assert kafka.batches == []
