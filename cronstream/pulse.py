"""A loop that stands still ends its process, so that whoever supervises it starts it anew.

Clients of Kafka have calls that may not return, whatever timeout they were given. Their heartbeats go
on in other threads, so the group waits for such a member and nobody takes its work over.

A process watches one loop: ``watch`` when it begins, ``beat`` once a round, ``rest`` when it is over. Unwatched,
beats mean nothing. Looks are counted, not time: a process that was stopped for an hour has missed one look.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
LOOKS = 120
"""More than any round of a healthy loop takes, its timeouts included."""
EXIT_CODE = 70


def end_process() -> None:
    """At once: what hangs would not let an orderly end come to its end either."""
    faulthandler.dump_traceback()
    os._exit(EXIT_CODE)


_watched: Pulse | None = None


def watch(loop: str, looks: int = LOOKS) -> None:
    """End this process if the loop does not beat for so many seconds. One that was watched before is no more."""
    global _watched
    rest()
    _watched = Pulse(loop, looks)
    _watched.start()


def beat() -> None:
    """The watched loop goes on."""
    if _watched is not None:
        _watched.beat()


def rest() -> None:
    """The watched loop is over, or waits for what may take any time."""
    global _watched
    if _watched is not None:
        _watched.stop()
    _watched = None


class Pulse:
    """Of one loop: ``beat`` once a round, from any thread."""

    def __init__(self, loop: str, looks: int = LOOKS, end: Callable[[], None] = end_process) -> None:
        self._loop = loop
        self._looks = looks
        self._end = end
        self._beats = 0
        self._seen = 0
        self._missed = 0
        self._over = threading.Event()

    def beat(self) -> None:
        """The loop goes on."""
        self._beats += 1

    def start(self) -> None:
        """Watch from a thread of its own, until ``stop``."""
        threading.Thread(target=self._watch, name=f"pulse of {self._loop}", daemon=True).start()

    def stop(self) -> None:
        """The loop is over."""
        self._over.set()

    def look(self) -> None:
        """Once in ``LOOK_SECONDS``: ends the process if there was no beat in so many looks."""
        self._missed = 0 if self._beats != self._seen else self._missed + 1
        self._seen = self._beats
        if self._missed >= self._looks:
            log.critical(
                "%s stands still: this process ends, to be started anew",
                self._loop,
                extra={"action": "standstill", "seconds": round(self._missed * LOOK_SECONDS)},
            )
            self._end()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self.look()
