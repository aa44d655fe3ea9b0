"""Says that an answer is long in coming: whoever waits for a lock gets no error, and would be silent.

Looks are counted, not time, as of a pulse: a process that was stopped for an hour has missed one look.
"""

from __future__ import annotations

import logging
import threading

import psycopg

from sql.blockers import Backend

log = logging.getLogger(__name__)

LOOK_SECONDS = 2.5
LOOKS = 4
"""Between two warnings about the same question."""


class SlowAnswers:
    """Of one connection: ``asked`` and ``answered`` by the thread that waits."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._asked = 0
        self._open: Backend | None = None
        self._seen = 0
        self._looks = 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def asked(self, backend: Backend) -> None:
        """A question is under way there."""
        self._asked += 1
        self._open = backend
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name=f"answers of the {self._role}", daemon=True)
            self._thread.start()

    def answered(self) -> None:
        """It is no more, whatever became of it."""
        self._open = None

    def close(self) -> None:
        """Look no more."""
        self._over.set()

    def look(self) -> None:
        """Once in ``LOOK_SECONDS``."""
        backend = self._open
        if backend is None or self._asked != self._seen:
            self._seen, self._looks = self._asked, 0
            return
        self._looks += 1
        if self._looks % LOOKS == 0:
            log.warning(
                "Postgres has not answered the %s for %.0f s; %s",
                self._role,
                self._looks * LOOK_SECONDS,
                _why(backend),
                extra={"action": "slow_answer", "pid": backend.pid},
            )

    def _watch(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self.look()


def _why(backend: Backend) -> str:
    try:
        with backend.beside() as connection:
            holders = backend.holders(connection)
    except psycopg.Error:
        return "nor does it take another connection"
    return "it waits for no lock" if holders is None else f"the lock that it needs is held by {holders}"
