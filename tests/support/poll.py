"""The one way tests wait: ask again until it is so, or until the deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(ask: Callable[[], T], *, within: float, every: float = 0.02, says: str = "") -> T:
    """Return the first truthy answer of ``ask``; AssertionError after ``within`` seconds."""
    deadline = time.monotonic() + within
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {within} s: {says or ask}; last answer {answer!r}")
        time.sleep(every)
