"""Capture on the real stack: what is committed arrives, what is not does not, and it heals by itself."""

from __future__ import annotations

import signal
import statistics
import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest
from confluent_kafka import Consumer, TopicPartition

from connectors.config import connector_config
from connectors.connect_api import ConnectUnavailable
from connectors.observation import Observer
from connectors.registration import Registration
from cronstream.changes import Changes, Heartbeat, decode
from cronstream.clock import SystemClock
from cronstream.settings import CaptureSettings
from tests.support.endpoints import Endpoints
from tests.support.installation import TestInstallation
from tests.support.poll import eventually

HEALS_WITHIN = 90.0
CLOCK = SystemClock()


class Feed:
    """Reads the changes topic from its beginning and keeps everything."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": f"test-{uuid.uuid4().hex}", "fetch.wait.max.ms": 5}
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.messages: list[Changes] = []
        self.events = 0
        self.heartbeats: list[Heartbeat] = []

    def read(self) -> None:
        message = self._consumer.poll(0.05)
        if message is None or message.error() is not None:
            return
        self.events += message.value() is not None and b'"op"' in message.value()
        event = decode(message.value())
        if isinstance(event, Changes):
            self.messages.append(event)
        elif isinstance(event, Heartbeat):
            self.heartbeats.append(event)

    def until(self, so: Callable[[], object], within: float, says: str) -> None:
        def ask() -> object:
            self.read()
            return so()

        eventually(ask, within=within, every=0, says=says)

    @property
    def changes(self) -> list[tuple[int, int, int]]:
        """(change_id, job_id, when it was committed), in the order in which they came."""
        return [(*change, message.committed_us) for message in self.messages for change in message.job_of.items()]

    def until_change(self, job_id: int, within: float = 10.0) -> None:
        self.until(
            lambda: any(job_id in message.job_of.values() for message in self.messages),
            within,
            f"word of job {job_id}",
        )

    def until_beating(self, within: float = HEALS_WITHIN) -> None:
        """A heartbeat that committed after this call."""
        now_us, seen = CLOCK.wall_us(), len(self.heartbeats)
        self.until(lambda: any(b.committed_us > now_us for b in self.heartbeats[seen:]), within, "a new heartbeat")

    def close(self) -> None:
        self._consumer.close()


class Capture:
    """One installation with ``python -m connectors`` running."""

    def __init__(self, installation: TestInstallation) -> None:
        self.installation = installation
        self.settings = installation.settings(CaptureSettings)
        self.registration = Registration(self.settings, CLOCK)
        self.feed = Feed(installation.endpoints.kafka, installation.topics.changes)
        self.process = installation.start(
            "connectors", "capture", capture_heartbeat_seconds=1, capture_watch_seconds=0.5
        )

    def edit(self) -> int:
        """Insert a job, committed; its id."""
        with self.installation.connect() as conn:
            return insert(conn)

    def status(self) -> str:
        """The connector's state and its task's."""
        try:
            status = self.registration.api.status(self.registration.name)
        except ConnectUnavailable:
            return "away"
        return "none" if status is None else f"{status.connector} {status.task}"

    def end(self) -> None:
        self.installation.end_processes()
        self.feed.close()
        api, name, slot = self.registration.api, self.registration.name, self.registration.slot
        with Observer(self.settings, api, name, slot) as observer:
            self.registration.remove(observer)


def insert(conn: psycopg.Connection[tuple[object, ...]]) -> int:
    row = conn.execute(
        "INSERT INTO cronstream.job_definitions (name, cron, handler) VALUES (%s, '@daily', 'log') RETURNING job_id",
        (uuid.uuid4().hex,),
    ).fetchone()
    assert row is not None
    assert isinstance(row[0], int)
    return row[0]


@pytest.fixture
def capture(installation: TestInstallation) -> Iterator[Capture]:
    running = Capture(installation)
    try:
        running.feed.until_beating()
        yield running
    finally:
        running.end()


def test_an_edit_is_on_the_topic_at_once_in_order_with_its_commit_time(capture: Capture) -> None:
    feed, latencies = capture.feed, []
    with capture.installation.connect() as conn:
        for _ in range(60):
            job_id = insert(conn)
            committed = CLOCK.boot_ns()
            feed.until_change(job_id)
            latencies.append((CLOCK.boot_ns() - committed) / 1e6)
        p50, worst = statistics.median(latencies), max(latencies)
        print(f"capture: p50 {p50:.0f} ms, p95 {sorted(latencies)[56]:.0f} ms, worst {worst:.0f} ms")
        assert p50 < 250
        rows = conn.execute(
            "SELECT change_id, job_id, cronstream.us(pg_xact_commit_timestamp(xmin))"
            " FROM cronstream.job_changes ORDER BY change_id"
        ).fetchall()
    assert feed.changes == rows


def test_what_was_rolled_back_never_arrives(capture: Capture) -> None:
    with capture.installation.connect() as conn:
        with conn.transaction(force_rollback=True):
            insert(conn)
        with conn.transaction():
            kept = insert(conn)
            with conn.transaction(force_rollback=True):
                insert(conn)
        conn.execute("UPDATE cronstream.job_definitions SET name = name")
        last = insert(conn)
    capture.feed.until_change(last)
    assert [job_id for _, job_id, _ in capture.feed.changes] == [kept, last]


def test_the_clearing_up_of_changes_is_no_news(capture: Capture) -> None:
    capture.feed.until_change(capture.edit())
    with capture.installation.connect() as conn:
        conn.execute("DELETE FROM cronstream.job_changes")
    last = capture.edit()
    capture.feed.until_change(last)
    assert len(capture.feed.changes) == 2


def test_word_of_one_statement_s_edits_comes_for_a_thousand_at_a_time(capture: Capture) -> None:
    with capture.installation.connect() as conn:
        conn.execute(
            "INSERT INTO cronstream.job_definitions (name, cron, handler)"
            " SELECT 'bulk-' || i, '@daily', 'log' FROM generate_series(1, 2500) i"
        )
        conn.execute("UPDATE cronstream.job_definitions SET enabled = false WHERE name IN ('bulk-7', 'bulk-9')")
        rows = conn.execute("SELECT change_id, job_id FROM cronstream.job_changes ORDER BY change_id").fetchall()
    feed = capture.feed
    feed.until(lambda: len(feed.changes) >= 2502, 20, "2502 changes")
    assert [change[:2] for change in feed.changes] == rows
    assert [len(message.job_of) for message in feed.messages] == [1000, 1000, 500, 2]


def test_other_people_s_messages_are_not_carried(capture: Capture) -> None:
    with capture.installation.connect() as conn:
        conn.execute("SELECT pg_logical_emit_message(true, 'theirs', 'a secret of theirs')")
    capture.feed.until_change(capture.edit())
    assert len(capture.feed.messages) == 1
    assert capture.feed.events == len(capture.feed.messages) + len(capture.feed.heartbeats)


def test_registering_again_disturbs_nothing(capture: Capture) -> None:
    capture.registration.register()
    capture.registration.register()
    capture.feed.until_beating()
    job_id = capture.edit()
    capture.feed.until_change(job_id)


def test_a_connector_that_was_deleted_is_registered_again_and_misses_nothing(capture: Capture) -> None:
    capture.registration.api.delete(capture.registration.name)
    job_id = capture.edit()
    capture.feed.until_change(job_id, HEALS_WITHIN)


def test_a_connector_that_was_stopped_is_resumed(capture: Capture) -> None:
    capture.registration.api.stop(capture.registration.name)
    job_id = capture.edit()
    capture.feed.until_change(job_id, HEALS_WITHIN)


def test_a_slot_that_was_dropped_is_made_anew(capture: Capture) -> None:
    slot = capture.registration.slot
    with capture.installation.connect() as conn:

        def drop() -> bool:
            conn.execute(
                "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                " WHERE slot_name = %s AND active_pid IS NOT NULL",
                (slot,),
            )
            try:
                conn.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
            except psycopg.errors.ObjectInUse:
                return False
            return True

        eventually(drop, within=20, says="the slot is dropped")
        unheard = insert(conn)
        capture.feed.until_beating()
        heard = insert(conn)
        capture.feed.until_change(heard)
        # What fell into the hole waits for the coordinator's audit.
        assert conn.execute("SELECT count(*) FROM cronstream.job_changes WHERE job_id = %s", (unheard,)).fetchone() == (
            1,
        )


def test_a_killed_connect_worker_goes_on_where_it_was(capture: Capture, stack: Endpoints) -> None:
    capture.feed.until_change(capture.edit())
    stack.kill("connect")
    job_id = capture.edit()
    stack.start("connect")
    capture.feed.until_change(job_id, HEALS_WITHIN)


def test_a_postgres_restart_heals_with_no_hands(capture: Capture, stack: Endpoints) -> None:
    capture.feed.until_change(capture.edit())
    stack.kill("postgres")
    try:
        eventually(lambda: "Postgres does not answer" in capture.installation.log_of("capture"), within=20, every=0.5)
    finally:
        stack.start("postgres")
    job_id = capture.edit()
    capture.feed.until_change(job_id, HEALS_WITHIN)


def test_a_failed_task_is_restarted_and_a_changed_configuration_mended(capture: Capture) -> None:
    capture.process.send_signal(signal.SIGSTOP)
    broken = {**connector_config(capture.settings), "publication.name": "nobody_made_this"}
    capture.registration.api.put_config(capture.registration.name, broken)
    eventually(lambda: "FAILED" in capture.status(), within=HEALS_WITHIN, every=0.2, says="the task fails")
    job_id = capture.edit()
    capture.process.send_signal(signal.SIGCONT)
    capture.feed.until_change(job_id, HEALS_WITHIN)
    assert "action=restart-failed" in capture.installation.log_of("capture")


def test_sigterm_ends_the_watchdog_at_once(capture: Capture) -> None:
    capture.process.terminate()
    assert capture.process.wait(5) == 0


def test_no_secret_shows_in_connect_or_in_the_log(capture: Capture) -> None:
    password = capture.installation.endpoints.password_file.read_text().strip()
    assert password not in capture.installation.log_of("capture")
    connector = capture.registration.api._call("GET", f"/connectors/{capture.registration.name}")
    assert password not in str(connector)
    assert "${file:" in connector["config"]["database.password"]


def test_the_watchdog_sees_whether_anything_moves(capture: Capture) -> None:
    capture.process.send_signal(signal.SIGSTOP)  # its own watching is not to heal what is broken here
    registration = capture.registration
    with Observer(capture.settings, registration.api, registration.name, registration.slot) as observer:
        observer.look()
        capture.feed.until_change(capture.edit())
        moved = eventually(observer.look, within=20, every=0.2)
        assert moved.still_seconds is not None
        assert moved.slot is not None
        assert moved.slot.active
        assert moved.slot.confirmed > 0
        registration.api.stop(registration.name)

        def still() -> bool:
            return (observer.look().still_seconds or 0.0) > 3.0

        eventually(still, within=60, every=0.2, says="it stands still for three seconds")
    capture.process.send_signal(signal.SIGCONT)
