"""How long a leader may believe that it leads, without asking anybody.

    sent            answered                    deadline         lease ends in etcd
     |-----------------|---------------------------|----- margin -----|------> boot time
     |<------------------------- TTL --------------------------------->|

A lease starts (or starts anew) at etcd after the request was sent. So at ``sent + TTL`` by
the leader's own clock it may just have ended at etcd, and never earlier; the margin pays for
two clocks that do not run at the same rate. Before the deadline no other can hold the key;
after it nobody knows, so the leader must have stopped, whether or not etcd could be asked.

Boot time (CLOCK_BOOTTIME) never jumps and runs on while the machine sleeps: a leader that
was suspended wakes up past its deadline and knows it at the next check.

What does not follow: that a write sent inside the window arrives inside it. Every store
therefore refuses an older token; the window keeps that from being the usual case.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from cronstream.clock import Clock

NANOSECONDS: Final = 1_000_000_000


class TermOver(Exception):
    """The term has ended; nothing may be done in its name any more. The text says why."""


class TrustWindow:
    """The deadline of trust, pushed out by each renewal. All times are boot time, ns."""

    __slots__ = ("_margin_ns", "deadline")

    def __init__(self, margin_seconds: float) -> None:
        if margin_seconds <= 0:
            raise ValueError(f"the margin must be above zero, not {margin_seconds}")
        self._margin_ns = round(margin_seconds * NANOSECONDS)
        self.deadline = 0

    def renewed(self, sent_at_boot_ns: int, ttl_seconds: float) -> None:
        """A grant or keepalive sent at that time was answered with that TTL; never shortens."""
        deadline = sent_at_boot_ns + round(ttl_seconds * NANOSECONDS) - self._margin_ns
        self.deadline = max(self.deadline, deadline)

    def trusted(self, now_boot_ns: int) -> bool:
        """Whether that instant is inside the window; the deadline itself is not."""
        return now_boot_ns < self.deadline


class Term:
    """One stretch of leadership: from an election to its end, which is final.

    Any thread may call anything here. Nothing blocks: ``trusted`` compares boot time with the
    deadline at the call, so that it is right however long the renewing thread was kept waiting.
    """

    def __init__(self, token: int, window: TrustWindow, clock: Clock) -> None:
        self.token = token
        """The fencing token: grows with every term."""
        self.over = threading.Event()
        """Set when the term has ended."""
        self._window = window
        self._clock = clock
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._listeners: list[Callable[[], object]] = []

    @property
    def reason(self) -> str | None:
        """Why the term ended; None while it lasts."""
        return self._reason

    @property
    def remaining_seconds(self) -> float:
        """Trust that is left without a further renewal; zero when the term is over."""
        if self.over.is_set():
            return 0.0
        return max(0, self._window.deadline - self._clock.boot_ns()) / NANOSECONDS

    def trusted(self) -> bool:
        """Whether the holder may act now. False once means false for ever."""
        if self.over.is_set():
            return False
        if self._window.trusted(self._clock.boot_ns()):
            return True
        self.end("the trust window closed before the lease was renewed")
        return False

    def check(self) -> None:
        """Raises TermOver unless the term is trusted."""
        if not self.trusted():
            raise TermOver(f"term {self.token} is over: {self._reason}")

    def renewed(self, sent_at_boot_ns: int, ttl_seconds: float) -> None:
        """Push the deadline out. An answer that comes after the deadline revives nothing."""
        if self.trusted():
            self._window.renewed(sent_at_boot_ns, ttl_seconds)

    def end(self, reason: str) -> None:
        """End the term; the first reason stays."""
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            self.over.set()
            listeners = self._listeners
        for listener in listeners:
            listener()

    def on_over(self, listener: Callable[[], object]) -> None:
        """Call ``listener`` when the term ends, in the thread that ends it; at once if it has."""
        with self._lock:
            if self._reason is None:
                self._listeners.append(listener)
                return
        listener()
