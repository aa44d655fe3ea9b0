"""The tail of triggers at a takeover, on a real broker: read to its end, wherever the broker lets it end."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from coordinator.tail import Tail, read_tail
from cronstream.records import Batch, Item, Kind
from cronstream.settings import CoordinatorSettings
from tests.support.installation import TestInstallation
from tests.unit.streams.making import NOON

TERM = cast(Any, SimpleNamespace(check=lambda: None))


def batch(job_id: int) -> bytes:
    return Batch.of([Item(Kind.RUN, job_id, NOON, body=b"w")], token=2, published_at=NOON).encode()


@pytest.fixture
def producer(installation: TestInstallation) -> Iterator[Producer]:
    """Its transaction is open for as long as the test wants."""
    made = Producer({"bootstrap.servers": installation.endpoints.kafka, "transactional.id": installation.name})
    made.init_transactions(20)
    yield made
    made.abort_transaction(20)


def tail(installation: TestInstallation, stored: dict[int, int]) -> Tail:
    settings = installation.settings(CoordinatorSettings, node="c1")
    return read_tail(settings, TERM, stored)


def test_the_tail_ends_where_the_broker_holds_a_transaction_open(
    installation: TestInstallation, producer: Producer
) -> None:
    topic = installation.topics.triggers
    producer.begin_transaction()
    producer.produce(topic, batch(7), partition=0)
    producer.commit_transaction(20)
    producer.begin_transaction()
    producer.produce(topic, batch(8), partition=1)
    assert producer.flush(20) == 0
    assert tail(installation, {}).newest == {7: NOON}


def test_a_tail_that_ends_before_it_begins_is_empty(installation: TestInstallation, producer: Producer) -> None:
    producer.begin_transaction()
    producer.produce(installation.topics.triggers, batch(8), partition=1)
    assert producer.flush(20) == 0
    # As after a restart of the broker that holds back a transaction whose commit it had acknowledged.
    assert tail(installation, {1: 1}).newest == {}
