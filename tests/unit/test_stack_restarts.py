"""Which processes `make up` restarts, and in which order."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from stack import process, services
from stack.home import Home

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
RUNNING = ("coordinator-1", "coordinator-2", "history")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home in which some processes run, each started with its own settings."""
    made = Home(tmp_path / "home")
    made.create()
    for name in RUNNING:
        process.spawn(
            SLEEP, pid_file=made.pid_file(name), log_file=made.log_file(name), environment={}, folder=made.path
        )
        began_with = services.environment(made, services.SERVICES[name])
        made.settings_file(name).write_text(json.dumps(began_with))
    yield made
    for name in RUNNING:
        services.kill(made, name)


@contextmanager
def stats(port: int, *, leads: bool) -> Iterator[None]:
    """A coordinator's page."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"leads": leads}).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", port), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


def test_a_process_that_runs_with_other_settings_is_found_out(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    history, worker = services.SERVICES["history"], services.SERVICES["worker-1"]
    assert services.changes(home, history) == []
    assert services.changes(home, worker, {"CRONSTREAM_SLOTS": "5"}) == [], "it does not run"
    assert services.changes(home, history, {"CRONSTREAM_HISTORY_DAYS": "5"}) == ["CRONSTREAM_HISTORY_DAYS"]
    monkeypatch.setenv("CRONSTREAM_LOG_LEVEL", "DEBUG")
    assert services.changes(home, history) == ["CRONSTREAM_LOG_LEVEL"]
    home.settings_file("history").unlink()
    assert "CRONSTREAM_NODE" in services.changes(home, history)


def test_a_setting_of_others_restarts_nobody(home: Home) -> None:
    of_others = {"CRONSTREAM_LEASE_TTL_SECONDS": "7", "CRONSTREAM_SLOTS": "5", "CRONSTREAM_DEDUP_WINDOW_SECONDS": "900"}
    assert services.changes(home, services.SERVICES["history"], of_others) == []
    assert services.changes(home, services.SERVICES["coordinator-1"], of_others) == [
        "CRONSTREAM_DEDUP_WINDOW_SECONDS",
        "CRONSTREAM_LEASE_TTL_SECONDS",
    ]


@pytest.mark.parametrize(
    ("leader", "standby"), [("coordinator-1", "coordinator-2"), ("coordinator-2", "coordinator-1")]
)
def test_coordinators_are_restarted_one_after_the_other_and_the_leader_last(
    home: Home, leader: str, standby: str
) -> None:
    chosen = [services.SERVICES[name] for name in (*RUNNING, "worker-1")]
    with stats(home.port(leader), leads=True), stats(home.port(standby), leads=False):
        order = [[one.name for one in together] for together in services.rounds(home, chosen, RUNNING)]
    assert order == [["history", "worker-1"], [standby], [leader]]


def test_what_runs_and_has_not_changed_is_left_alone(home: Home) -> None:
    chosen = [services.SERVICES[name] for name in (*RUNNING, "worker-1")]
    assert [[one.name for one in together] for together in services.rounds(home, chosen, ())] == [["worker-1"]]


def test_a_restarted_member_is_at_work_once_it_says_so_itself(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    history = services.SERVICES["history"]
    log = home.log_file("history")
    log.write_text("x INFO streams.consuming Partitions came action=assigned partitions=4\n")
    before = process.size_of(log)
    monkeypatch.setattr(services, "START_SECONDS", 0.0)
    services._wait_at_work(home, history, before)
    assert "history runs; that it has partitions is not in its log" in capsys.readouterr().err
    with log.open("a") as more:
        more.write("y INFO streams.consuming Partitions came action=assigned partitions=4\n")
    services._wait_at_work(home, history, before)
    assert capsys.readouterr().err == ""


def test_a_member_that_logs_warnings_only_is_not_waited_for(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home.settings_file("history").write_text(json.dumps({"CRONSTREAM_LOG_LEVEL": "WARNING"}))
    monkeypatch.setattr(services, "START_SECONDS", 0.0)
    services._wait_at_work(home, services.SERVICES["history"], 0)
    assert capsys.readouterr().err == ""


def test_a_log_that_was_begun_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert process.size_of(log) == 0
    assert not process.says(log, 0, b"words")
    log.write_bytes(b"some words")
    assert process.says(log, 0, b"words")
    assert not process.says(log, 10, b"words")
    assert process.says(log, 11, b"words")
