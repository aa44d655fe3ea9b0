"""Calls that may never return."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from streams.bounded import BoundedCalls


def test_a_call_returns_or_raises_what_it_does() -> None:
    calls = BoundedCalls("test", 30.0)
    assert calls.call("six", lambda: 6) == 6
    with pytest.raises(ZeroDivisionError):
        calls.call("division", lambda: 1 / 0)
    late = TimeoutError("of the call itself")

    def times_out() -> None:
        raise late

    with pytest.raises(TimeoutError) as raised:
        calls.call("timeout", times_out)
    assert raised.value is late


def test_a_call_that_does_not_return_is_a_timeout_that_names_it() -> None:
    calls = BoundedCalls("test", 0.05)
    never = threading.Event()
    with pytest.raises(KafkaException) as raised:
        calls.call("commit_transaction", never.wait)
    error = raised.value.args[0]
    assert error.code() == KafkaError._TIMED_OUT
    assert "commit_transaction" in error.str()
    assert not error.txn_requires_abort()
    never.set()


def test_the_last_call_is_made_after_the_one_that_did_not_return() -> None:
    calls = BoundedCalls("test", 0.05)
    gate, ended, order = threading.Event(), threading.Event(), []

    def stuck() -> None:
        gate.wait()
        order.append("stuck")

    def last() -> None:
        order.append("last")
        ended.set()

    with pytest.raises(KafkaException):
        calls.call("stuck", stuck)
    calls.end(last)
    gate.set()
    assert ended.wait(30)
    assert order == ["stuck", "last"]
