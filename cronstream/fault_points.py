"""Where a test lets a process die: between two effects, at a place that has a name.

``CRONSTREAM_FAULT_POINT=admit.sent`` kills the process (SIGKILL, by its own hand) the first time that it
reaches the point of that name, ``admit.sent:3`` the third time. Without the variable a point costs one
comparison and does nothing.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

VARIABLE = "CRONSTREAM_FAULT_POINT"


class FaultPoint:
    """The point that ends this process, and how often it has yet to be reached. ``parse`` reads one."""

    def __init__(self, name: str, times: int) -> None:
        self.name = name
        self._left = times

    @classmethod
    def parse(cls, text: str) -> FaultPoint:
        """``name`` or ``name:times``. Raises ValueError, naming the variable."""
        name, _, times = text.partition(":")
        if not name or (times and not (times.isdecimal() and int(times) > 0)):
            raise ValueError(f"{VARIABLE}: {text!r} is not NAME or NAME:TIMES, with TIMES from 1")
        return cls(name, int(times or 1))

    def reached(self, name: str) -> bool:
        """True once the point of that name was reached so many times."""
        if name != self.name:
            return False
        self._left -= 1
        return self._left <= 0


def _of(environ: Mapping[str, str]) -> FaultPoint | None:
    text = environ.get(VARIABLE)
    return FaultPoint.parse(text) if text else None


_chosen = _of(os.environ)


def reach(name: str) -> None:
    """Say that the point ``name`` is reached; does not return if it is the chosen one."""
    if _chosen is not None and _chosen.reached(name):
        os.kill(os.getpid(), signal.SIGKILL)
