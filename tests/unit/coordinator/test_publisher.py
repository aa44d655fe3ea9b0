"""The term's producer and its end; the rest of it is in tests/integration/test_coordinator.py."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from coordinator.publisher import Publisher
from cronstream.clock import FakeClock
from cronstream.settings import CoordinatorSettings

SETTINGS = CoordinatorSettings(postgres="", kafka="127.0.0.1:9", etcd="127.0.0.1:9")


class Unreachable:
    """A producer whose broker is away."""

    def purge(self) -> None:
        pass

    def close(self) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def test_a_producer_that_does_not_close_in_order_is_no_exception_of_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    uncaught: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", uncaught.append)
    publisher = Publisher(SETTINGS, cast(Any, type("Term", (), {"check": None})), FakeClock())
    publisher._producer = cast(Any, Unreachable())
    publisher.close()
    for thread in threading.enumerate():
        if thread.name == "publisher-close":
            thread.join(10)
    assert not uncaught
