"""The mover's shell: what its client does to it. What it decides is in test_moves.py, the whole in test_retries.py."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from cronstream import pulse
from cronstream.clock import SystemClock
from streams import mover
from streams.mover import Session
from tests.unit.streams.test_topics import SETTINGS


class Consumer:
    """Closes at once, or never."""

    def __init__(self, *, hangs: bool) -> None:
        self.hangs = hangs
        self.closed = threading.Event()

    def close(self) -> None:
        if self.hangs:
            threading.Event().wait()
        self.closed.set()


@pytest.mark.parametrize("hangs", [False, True])
def test_a_consumer_that_does_not_close_ends_the_process(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[str] = []
    monkeypatch.setattr(pulse, "end_process", lambda: ends.append("ended"))
    monkeypatch.setattr(mover, "CLOSE_SECONDS", 0.05 if hangs else 30.0)
    session = Session(SETTINGS, SystemClock())
    consumer = Consumer(hangs=hangs)
    session._consumer = cast(Any, consumer)
    session.close()
    assert ends == (["ended"] if hangs else [])
    assert consumer.closed.is_set() is not hangs
