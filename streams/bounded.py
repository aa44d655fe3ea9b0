"""Calls that may never return, waited for no longer than a given time.

librdkafka looks at the deadline of ``send_offsets_to_transaction`` until the transaction's coordinator has
answered, and not while it waits for the group's: if that broker goes just then, only the next change of its
connection goes on with the call, and that may never come (librdkafka's issue 5456; 2.16 has it).

So calls are made in a thread of their own. One that does not return keeps its thread, and what it needs, until
it does; nothing more is to be asked of them then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException

T = TypeVar("T")


class BoundedCalls:
    """One after the other, in one thread, until ``end``. The calls may know shorter deadlines of their own."""

    def __init__(self, name: str, seconds: float) -> None:
        self._seconds = seconds
        self._asked: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        # Daemon: a call that never returns must not hold up the end of the process.
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, what: str, function: Callable[[], T]) -> T:
        """What ``function`` returns or raises. Raises KafkaException (``_TIMED_OUT``) if it does neither in time."""
        future: Future[T] = Future()
        self._asked.put((future, function))
        try:
            return future.result(self._seconds)
        except TimeoutError:
            if future.done():
                raise
            said = f"{what} has not returned for {self._seconds:g} s"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, said)) from None

    def end(self, last: Callable[[], Any]) -> None:
        """Nothing more is called but ``last``, for which nobody waits."""
        self._asked.put((Future(), last))
        self._asked.put(None)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            future, function = asked
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
            del asked, future, function  # what they hold is not kept until the next call
