"""Time for the stack: polling with a deadline, and progress lines. Nothing else here sleeps."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

FIRST_LINE_SECONDS = 2.0
NEXT_LINES_SECONDS = 5.0


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began


def wait_until(condition: Callable[[], bool], seconds: float, pause: float = 0.05) -> bool:
    """Poll until ``condition`` holds (True) or ``seconds`` have passed (False)."""
    watch = Stopwatch()
    while not condition():
        if watch.seconds >= seconds:
            return False
        time.sleep(pause)
    return True


def say(line: str) -> None:
    """One line of progress for people, on standard error."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def progress(describe: Callable[[], str]) -> Iterator[Stopwatch]:
    """Say what is being waited for, with the seconds, once it takes longer than two."""
    watch = Stopwatch()
    over = threading.Event()

    def tell() -> None:
        pause = FIRST_LINE_SECONDS
        while not over.wait(pause):
            say(f"  ... {describe()} ({watch.seconds:.0f} s)")
            pause = NEXT_LINES_SECONDS

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield watch
    finally:
        over.set()
        teller.join()
