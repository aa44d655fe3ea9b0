"""Whether this process may still believe that its partitions are its own.

A process that stood still (suspended, paused, starved) longer than its session
has been replaced, and learns of it only when the client library has noticed,
within about a second. Until then it must start nothing. The poll thread gives a
sign of life each round; after a gap nothing is started for a while.
"""

from __future__ import annotations

NOTICE_NS = 2_000_000_000
"""Longer than the client takes, once it runs again, to say that partitions were lost."""


class Trust:
    """``alive`` is called by the poll thread, ``holds`` by whoever starts a run."""

    def __init__(self, session_seconds: float, boot_ns: int) -> None:
        self._gap_ns = int(session_seconds * 1e9 / 2)
        self._alive_ns = boot_ns
        self._held_until_ns = 0

    def alive(self, boot_ns: int) -> None:
        """A round of the poll loop."""
        if boot_ns - self._alive_ns > self._gap_ns:
            self._held_until_ns = boot_ns + NOTICE_NS
        self._alive_ns = boot_ns

    def holds(self, boot_ns: int) -> bool:
        """True if a run may start now."""
        return boot_ns >= self._held_until_ns and boot_ns - self._alive_ns <= self._gap_ns
