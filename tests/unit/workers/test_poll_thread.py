"""A worker whose poll thread is gone ends, whatever ended the thread."""

from __future__ import annotations

import asyncio
import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from cronstream.clock import SystemClock
from cronstream.settings import WorkerSettings
from workers.consumer import NoTopic, PollThread
from workers.service import Service
from workers.trust import Trust

SETTINGS = WorkerSettings(postgres="host=nowhere", kafka="127.0.0.1:9", etcd="127.0.0.1:9")


def raise_what_is_no_exception() -> None:
    """As the client library does when one of its own calls fails inside a rebalance: a KafkaError, itself."""
    api: Any = ctypes.pythonapi
    api.PyErr_Restore.argtypes = [ctypes.py_object, ctypes.py_object, ctypes.c_void_p]
    api.PyErr_Restore.restype = None
    api.Py_IncRef.argtypes, api.Py_IncRef.restype = [ctypes.py_object], None
    error = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION, "Failed to get watermark offsets")
    for held in (KafkaError, error):
        api.Py_IncRef(held)
    api.PyErr_Restore(KafkaError, error, None)


class Struck(PollThread):
    """Its first round ends so."""

    def _round(self) -> None:
        raise_what_is_no_exception()


def test_a_poll_thread_that_no_except_clause_hears_of_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda args: None)  # pytest's own cannot print such a thing

    async def story() -> BaseException | None:
        loop, clock = asyncio.get_running_loop(), SystemClock()
        ended: asyncio.Future[BaseException | None] = loop.create_future()
        trust = Trust(SETTINGS.session_timeout_seconds, clock.boot_ns())
        service = Service(SETTINGS.topics.attempts, clock)
        struck = Struck(SETTINGS, clock, trust, cast(Any, service), loop, ended.set_result)
        struck.start()
        problem = await asyncio.wait_for(ended, 10)
        struck._thread.join(10)  # or its end would be told to the hook of the next test
        return problem

    assert "poll thread" in str(asyncio.run(story()))


class Unled:
    """A client whose partition gets its leader with the third question."""

    def __init__(self) -> None:
        self.asked = 0

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        self.asked += 1
        if self.asked < 3:
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        return (5, 9)


def test_a_partition_that_nobody_leads_yet_is_asked_for_again() -> None:
    loop, client = asyncio.new_event_loop(), Unled()
    clock = SystemClock()
    trust = Trust(SETTINGS.session_timeout_seconds, clock.boot_ns())
    thread = PollThread(SETTINGS, clock, trust, cast(Any, None), loop, lambda _: None)
    assert thread._watermarks(cast(Any, client), TopicPartition("attempts", 0)) == (5, 9)
    assert client.asked == 3
    loop.close()


class Unknown:
    """What the broker says of a topic that is not there."""

    def error(self) -> KafkaError:
        return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_a_worker_of_another_installation_s_name_is_told_what_to_set() -> None:
    loop, clock = asyncio.new_event_loop(), SystemClock()
    trust = Trust(SETTINGS.session_timeout_seconds, clock.boot_ns())
    thread = PollThread(SETTINGS, clock, trust, cast(Any, None), loop, lambda _: None)
    with pytest.raises(NoTopic, match=r"no topic cronstream\.attempts: CRONSTREAM_INSTALLATION is cronstream; set it"):
        thread._hand_over(cast(Any, Unknown()))
    loop.close()


def test_what_an_operator_has_to_mend_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    servers = {"POSTGRES": "host=nowhere", "KAFKA": "127.0.0.1:9", "ETCD": "127.0.0.1:9"}
    given = {f"CRONSTREAM_{name}": text for name, text in servers.items()}
    given["CRONSTREAM_SQL_CONNECTIONS"] = str(tmp_path / "none.toml")
    ended = subprocess.run(
        [sys.executable, "-m", "workers"], env={**os.environ, **given}, capture_output=True, text=True
    )
    assert ended.returncode == 1
    (line,) = [line for line in (ended.stdout + ended.stderr).splitlines() if "librdkafka" not in line]
    assert "CRITICAL workers The worker ends: CRONSTREAM_SQL_CONNECTIONS: " in line
