"""The sink's loop while nothing comes: it is idle, and does not stand still."""

from __future__ import annotations

from typing import Any, cast

import pytest

from cronstream import pulse
from cronstream.clock import SystemClock
from cronstream.settings import HistorySettings, read_settings
from streams.sink import Sink
from tests.unit.streams.test_topics import ENVIRONMENT


def test_a_sink_to_which_nothing_comes_goes_on_beating(monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[int] = []
    monkeypatch.setattr(pulse, "beat", lambda: beats.append(1))
    sink = Sink(read_settings(HistorySettings, ENVIRONMENT), SystemClock())
    rounds = iter(range(5))

    class Consumer:
        def consume(self, num_messages: int, timeout: float) -> list[Any]:
            if next(rounds) == 4:
                sink.stop()
            return []

    sink._consumer = cast(Any, Consumer())
    assert sink._gather() == []
    assert len(beats) == 5
