"""What the reader has with the dispatcher and the writer: handing over, and waiting for them.

Every wait ends with ``Stopping`` when the term does.
"""

from __future__ import annotations

import threading

from coordinator.arrivals import Arrival, Forget, Horizon, Mailbox
from coordinator.asking import Stopping
from coordinator.writer import Writer
from cronstream.clock import SECOND

_MOST_WAITING = 8
"""Parts that wait for the dispatcher before the reader does."""


class Handing:
    """The reader's thread alone uses it."""

    def __init__(self, mailbox: Mailbox, stop: threading.Event) -> None:
        self._mailbox = mailbox
        self._stop = stop
        self._writer: Writer | None = None
        self._tail = 0

    def follow_writer(self, writer: Writer) -> None:
        """``writer`` tells which writes are done; what it has been given by now is the tail."""
        self._writer = writer
        self._tail = writer.handed_over

    @property
    def flushed(self) -> int:
        """How many writes are done: what is read from now on has seen them."""
        return self._writing.flushed

    @property
    def tail_is_written(self) -> bool:
        """True once what the leader before had published stands in the rows."""
        return self.flushed >= self._tail

    @property
    def behind_us(self) -> int:
        """The age of the oldest write that is not done."""
        return round(self._writing.waiting_seconds() * SECOND)

    @property
    def token(self) -> int:
        """The term's fencing token."""
        return self._writing.token

    def put(self, arrival: Arrival) -> None:
        """Hand over, whatever waits already."""
        self._mailbox.put(arrival)

    def put_and_wait(self, arrival: Horizon | Forget) -> None:
        """Hand over, and wait until the dispatcher has taken it."""
        self._mailbox.put(arrival)
        while not arrival.taken.is_set():
            if self._stop.wait(0.005):
                raise Stopping

    def put_and_flush(self, arrival: Horizon | Forget) -> None:
        """Hand over, and wait until the dispatcher has taken it and all that it had handed on by then is written."""
        self.put_and_wait(arrival)
        self.await_flushed()

    def await_room(self, waiting: int = _MOST_WAITING) -> None:
        """Until no more than so much of what was handed over waits for the dispatcher: the mailbox stays small."""
        while len(self._mailbox) > waiting:
            if self._stop.wait(0.001):
                raise Stopping

    def await_flushed(self) -> None:
        """Until all that the dispatcher has handed to the writer by now is written."""
        upto = self._writing.handed_over
        while self._writing.flushed < upto:
            if self._stop.wait(0.005):
                raise Stopping

    @property
    def _writing(self) -> Writer:
        assert self._writer is not None
        return self._writer
