"""What a kafka job may produce, without a broker."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from cronstream.clock import FakeClock
from tests.unit.workers.attempts import an_attempt, settings
from workers.handlers.kafka import KafkaHandler, ToProduce, headers_of, is_reserved, value_of


def asked(**payload: Any) -> ToProduce:
    return msgspec.json.decode(json.dumps({"topic": "orders", **payload}).encode(), type=ToProduce)


@pytest.mark.parametrize(
    "topic", ["acme", "acme.triggers", "acme.retry.1", "acme-streams-status-changelog", "__consumer_offsets", "_x"]
)
def test_the_installations_own_topics_are_reserved(topic: str) -> None:
    assert is_reserved(topic, "acme")


@pytest.mark.parametrize("topic", ["orders", "acmes", "x.acme.triggers", "ac"])
def test_others_are_not(topic: str) -> None:
    assert not is_reserved(topic, "acme")


def test_a_reserved_topic_is_refused_before_any_broker_is_asked() -> None:
    async def go() -> None:
        handler = KafkaHandler(settings(installation="acme"), FakeClock())
        result = await handler.run(an_attempt("kafka", {"topic": "acme.triggers"}))
        assert result.final
        assert "the installation's or Kafka's own" in (result.error or "")
        await handler.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("value", "bytes_sent"),
    [("ü, as it is", "ü, as it is".encode()), ({"n": 1}, b'{"n": 1}'), (5, b"5"), (False, b"false"), (None, None)],
)
def test_text_is_sent_as_it_is_and_null_as_nothing(value: object, bytes_sent: bytes | None) -> None:
    assert value_of(asked(value=value), an_attempt()) == bytes_sent


def test_without_a_value_it_is_an_envelope() -> None:
    assert json.loads(value_of(asked(), an_attempt()) or b"")["key"] == "7-1772953200000000-0"


def test_the_identity_cannot_be_forged() -> None:
    headers = headers_of(asked(headers={"Cronstream-Attempt": "9", "own": "1"}), an_attempt(attempt=2))
    assert dict(headers) == {
        "own": b"1",
        "cronstream-idempotency-key": b"7-1772953200000000-0",
        "cronstream-fencing-token": b"41",
        "cronstream-scheduled-time": b"2026-03-08T07:00:00Z",
        "cronstream-attempt": b"2",
        "cronstream-job-id": b"7",
        "cronstream-job": b"nightly",
        "cronstream-tenant": b"acme",
    }
