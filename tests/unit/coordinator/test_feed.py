"""The feed goes on whatever the topic holds, and does not fill the log with it."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from coordinator.feed import Feed
from cronstream.settings import CoordinatorSettings


def test_a_flood_of_unreadable_records_is_told_of_in_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    beats: list[int] = []

    def unwanted(*_: Any) -> None:
        raise AssertionError

    settings = CoordinatorSettings.model_validate({"postgres": "dbname=x", "kafka": "k:1", "etcd": "e:1"})
    feed = Feed(settings, threading.Event(), changed=unwanted, requested=unwanted, beat=beats.append, end_term=unwanted)
    for _ in range(1000):
        feed._read(b"no json")
    feed._read(b'{"op": "u", "source": {"table": "capture_heartbeat", "ts_us": 7}, "after": {}}')
    feed.close()
    lines = [record.getMessage() for record in caplog.records if record.name == "coordinator.feed"]
    assert beats == [7]
    assert len(lines) == 10
    assert lines[0].startswith("1 records of cronstream.changes")
    assert "not JSON" in lines[-1]
