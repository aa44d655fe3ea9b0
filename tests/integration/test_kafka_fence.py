"""Fencing Kafka at a takeover, on a real broker: what the last leader left open is aborted, and it is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from coordinator.kafka_fence import fence_kafka
from cronstream.clock import SystemClock
from tests.support.installation import TestInstallation

SECONDS = 20


@pytest.fixture
def older(installation: TestInstallation) -> Iterator[Producer]:
    """A leader in the middle of a transaction."""
    made = Producer({"bootstrap.servers": installation.endpoints.kafka, "transactional.id": installation.name})
    made.init_transactions(SECONDS)
    made.begin_transaction()
    made.produce(installation.topics.triggers, b"not committed", partition=0)
    assert made.flush(SECONDS) == 0
    yield made
    made.purge()


def fence(installation: TestInstallation) -> None:
    address, name = installation.endpoints.kafka, installation.name
    fence_kafka(address, name, SystemClock(), timeout_ms=10_000, seconds=SECONDS)


def test_the_older_leader_cannot_commit_what_it_left_open(installation: TestInstallation, older: Producer) -> None:
    fence(installation)
    with pytest.raises(KafkaException) as refused:
        older.commit_transaction(SECONDS)
    assert refused.value.args[0].name() in ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")


def test_the_client_that_follows_is_ready_at_its_first_asking(
    installation: TestInstallation, older: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    fence(installation)
    successor = Producer(
        {
            "bootstrap.servers": installation.endpoints.kafka,
            "transactional.id": installation.name,
            "logger": logging.getLogger("successor"),
        }
    )
    successor.list_topics(timeout=SECONDS)
    successor.init_transactions(SECONDS)
    successor.poll(0)
    assert "Failed to acquire" not in caplog.text


def test_a_name_that_is_new_is_fenced_too(installation: TestInstallation) -> None:
    fence(installation)
    fence(installation)
