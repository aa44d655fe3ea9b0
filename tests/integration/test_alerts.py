"""Dead letters on real servers: rows, one alert for many, a webhook, and what the command does about them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from cli import webhook
from cli.errors import Failure, Unasked
from cli.webhook import look_at_webhook
from cronstream.clock import SECOND, SystemClock, iso
from cronstream.dead_letters import Record, letter_of
from cronstream.records import Item, Kind
from cronstream.settings import AlertSettings
from tests.support.command import Command
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from tests.unit.streams.making import outcome, outcomes, run, triggers

NOW = SystemClock().wall_us() // SECOND * SECOND


class Topic:
    """Everything on a topic so far."""

    def __init__(self, installation: TestInstallation, name: str, partitions: int) -> None:
        self.messages: list[Any] = []
        self.consumer = Consumer(
            {"bootstrap.servers": installation.endpoints.kafka, "group.id": "r", "enable.auto.commit": False}
        )
        self.consumer.assign([TopicPartition(name, partition, 0) for partition in range(partitions)])

    def read(self) -> list[Any]:
        self.messages += [message for message in self.consumer.consume(1000, 0.05) if message.error() is None]
        return self.messages

    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(message.value()) for message in self.read()]


@pytest.fixture
def alerts(installation: TestInstallation) -> Iterator[Topic]:
    topic = Topic(installation, installation.topics.alerts, 1)
    yield topic
    topic.consumer.close()


@pytest.fixture
def command(installation: TestInstallation) -> Command:
    return Command(installation.variables)


class Letters:
    """Puts letters into the dead-letter topic, as streams do."""

    def __init__(self, installation: TestInstallation) -> None:
        self.topics = installation.topics
        self.producer = Producer({"bootstrap.servers": installation.endpoints.kafka, "linger.ms": 5})
        self.offset = 0

    def put(self, reason: str, value: bytes, topic: str, about: list[tuple[str, bytes]], partition: int = 1) -> None:
        record = Record(topic, partition, self.offset, b"key", value, [("trace", b"abc")])
        self.offset += 1
        letter = letter_of(record, reason, "it broke", "streams")
        self.producer.produce(
            self.topics.dead_letter, letter.value, letter.key, headers=[*letter.headers, *about], partition=partition
        )

    def run(self, job_id: int, scheduled_us: int = NOW, attempts: int = 5, reason: str = "exhausted") -> None:
        item = outcome(Kind.FAILED, job_id, scheduled_us, attempts, "no")
        about = {"job-id": job_id, "tenant": "acme", "name": f"job {job_id}", "request-id": 0, "attempts": attempts}
        about |= {"scheduled-time": f"{iso(scheduled_us)}", "key": f"{job_id}-{scheduled_us}-0"}
        headers = [(f"cronstream-{name}", str(text).encode()) for name, text in about.items()]
        self.put(reason, outcomes([item]).encode(), self.topics.outcomes, headers)
        if self.offset % 1000 == 0:
            self.producer.poll(0)

    def flush(self) -> None:
        assert self.producer.flush(60) == 0


def rows(installation: TestInstallation) -> int:
    with installation.connect() as connection:
        row = connection.execute("SELECT count(*) FROM cronstream.dead_letters").fetchone()
    assert row is not None
    return int(row[0])


def test_ten_thousand_letters_of_a_job_are_one_alert_with_a_count(
    installation: TestInstallation, alerts: Topic
) -> None:
    letters = Letters(installation)
    for minute in range(10_000):
        letters.run(7, NOW + minute * SECOND)
    letters.run(8)
    letters.flush()
    process = installation.start("streams.alerts", "a1")
    eventually(lambda: len(alerts.bodies()) == 2, within=60)
    by_job = {body["job_id"]: body for body in alerts.bodies()}
    assert {job: body["count"] for job, body in by_job.items()} == {7: 10_000, 8: 1}
    told = by_job[7]
    assert (told["reason"], told["tenant"], told["name"], told["example"]["attempts"]) == (
        "exhausted",
        "acme",
        "job 7",
        5,
    )
    eventually(lambda: rows(installation) == 10_001, within=60)

    # A crash, and the letters once more as a repeated decision produces them: no new rows.
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    letters.offset -= 1
    letters.run(8)
    letters.run(9)
    letters.flush()
    installation.start("streams.alerts", "a2")
    eventually(lambda: any(body["job_id"] == 9 for body in alerts.bodies()), within=60)
    assert rows(installation) == 10_002


def test_the_first_alert_comes_at_once_and_what_follows_is_grouped(
    installation: TestInstallation, alerts: Topic
) -> None:
    installation.start("streams.alerts", "a1", alert_window_seconds=4)
    letters = Letters(installation)
    letters.run(1)
    letters.flush()
    eventually(lambda: len(alerts.bodies()) == 1, within=60)
    letters.run(2)
    letters.flush()
    eventually(lambda: len(alerts.bodies()) == 2, within=2)
    for second in range(5):
        letters.run(2, NOW + second * SECOND)
    letters.flush()
    eventually(lambda: len(alerts.bodies()) == 3, within=15)
    assert [(body["job_id"], body["count"]) for body in alerts.bodies()] == [(1, 1), (2, 1), (2, 5)]


def test_while_postgres_is_away_alerts_come_and_rows_follow(installation: TestInstallation, alerts: Topic) -> None:
    installation.start("streams.alerts", "a1")
    letters = Letters(installation)
    letters.run(1)
    letters.flush()
    eventually(lambda: rows(installation) == 1, within=60)
    installation.endpoints.kill("postgres")
    try:
        letters.run(2)
        letters.flush()
        eventually(lambda: len(alerts.bodies()) == 2, within=30)
    finally:
        installation.endpoints.start("postgres")
    eventually(lambda: rows(installation) == 2, within=30)


class Hook(ThreadingHTTPServer):
    """A webhook that answers as it is told."""

    def __init__(self) -> None:
        self.answers = [503, 302, 200]
        self.seen: list[tuple[int, str | None, dict[str, Any]]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = hook.answers.pop(0) if hook.answers else 200
                hook.seen.append((answer, self.headers["Authorization"], body))
                self.send_response(answer)
                self.send_header("Location", "http://127.0.0.1:1/")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        super().__init__(("127.0.0.1", 0), Handler)
        Thread(target=self.serve_forever, daemon=True).start()


def test_a_webhook_hears_each_alert_until_it_has_taken_it(
    installation: TestInstallation, alerts: Topic, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    hook = Hook()
    url = f"http://127.0.0.1:{hook.server_port}/hook"
    try:
        installation.start("streams.alerts", "a1", alert_webhook_url=url, alert_webhook_token_file=token)
        eventually(lambda: "Alerts go to the webhook" in installation.log_of("a1"), within=60)
        letters = Letters(installation)
        letters.run(1)
        letters.flush()
        eventually(lambda: [seen[0] for seen in hook.seen] == [503, 302, 200], within=60)
        assert {seen[1] for seen in hook.seen} == {"Bearer s3cret"}
        assert [seen[2] for seen in hook.seen] == alerts.bodies() * 3
        assert "s3cret" not in installation.log_of("a1")
    finally:
        hook.shutdown()
        hook.server_close()


def test_a_webhook_that_takes_nothing_is_seen_in_the_status(
    installation: TestInstallation, alerts: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = installation.settings(AlertSettings)

    def look_first() -> tuple[object] | None:
        with suppress(Unasked):  # the topic was just made
            return (look_at_webhook(silent, 10),)
        return None

    assert eventually(look_first, within=60) == (None,)
    hook = Hook()
    hook.answers = [500] * 1000
    url = f"http://127.0.0.1:{hook.server_port}/hook"
    chosen = installation.settings(AlertSettings, alert_webhook_url=url)
    with pytest.raises(Failure, match="a webhook is set and nobody is in the group"):
        look_at_webhook(chosen, 10)
    try:
        process = installation.start("streams.alerts", "a1", alert_webhook_url=url)
        eventually(lambda: "Alerts go to the webhook" in installation.log_of("a1"), within=60)
        assert look_at_webhook(silent, 10) == {"backlog": 0, "oldest_age": None}
        letters = Letters(installation)
        letters.run(1)
        letters.flush()
        eventually(lambda: len(hook.seen) >= 2, within=60)
        found = look_at_webhook(silent, 10)
        assert found is not None
        assert found["backlog"] == 1
        assert timedelta(0) <= found["oldest_age"] < timedelta(seconds=60)
        monkeypatch.setattr(webhook, "STUCK_SECONDS", -1.0)
        with pytest.raises(Failure, match="the webhook does not get on: 1 alert waits for it, the oldest for"):
            look_at_webhook(silent, 10)
        process.terminate()
        process.wait(30)
        assert look_at_webhook(silent, 10) is None, "nobody wants it any more"
    finally:
        hook.shutdown()
        hook.server_close()


def test_the_command_lists_shows_discards_and_redrives(installation: TestInstallation, command: Command) -> None:
    letters = Letters(installation)
    installation.start("streams.alerts", "a1")
    poison = outcomes([Item(Kind.FAILED, 40, NOW, body=b"nonsense")]).encode()
    letters.run(1)
    letters.run(2, reason="final")
    letters.put("poison_item", poison, installation.topics.outcomes, [], partition=3)
    letters.put("stale_token", triggers([run(5), run(6)]).encode(), installation.topics.triggers, [])
    letters.flush()
    eventually(lambda: rows(installation) == 4, within=60)

    listed = {one["reason"]: one for one in command.json("dead-letters", "list")}
    assert listed.keys() == {"exhausted", "final", "poison_item", "stale_token"}
    for options, reasons in (
        (["--job", "1"], {"exhausted"}),
        (["--job", "acme/job 2"], {"final"}),
        (["--job", "6"], {"stale_token"}),
        (["--tenant", "acme"], {"exhausted", "final"}),
        (["--reason", "final"], {"final"}),
        (["--since", "5m"], listed.keys()),
        (["--until", "5m"], set()),
    ):
        assert {one["reason"] for one in command.json("dead-letters", "list", *options)} == reasons
    shown = command.json("dead-letters", "show", listed["exhausted"]["letter_id"])
    assert (shown["items"][0]["job_id"], shown["items"][0]["error"]) == (1, "no")
    assert "it broke" in command("dead-letters", "show", listed["poison_item"]["letter_id"]).stdout

    stale = listed["stale_token"]["letter_id"]
    refused = command("dead-letters", "redrive", stale)
    assert refused.exit_code == 1
    assert "it would be refused again: discard it" in refused.stderr
    assert command("dead-letters", "discard", stale).exit_code == 0
    assert stale not in {one["letter_id"] for one in command.json("dead-letters", "list")}
    (gone,) = command.json("dead-letters", "list", "--state", "discarded")
    assert gone["letter_id"] == stale
    assert "is discarded already" in command("dead-letters", "redrive", stale).stderr

    # What was unreadable stands again where it stood, as it was: to be read by a version that can.
    assert command("dead-letters", "redrive", "--reason", "poison_item").exit_code == 0
    topic = Topic(installation, installation.topics.outcomes, 4)
    eventually(lambda: len(topic.read()) == 1, within=30)
    (message,) = topic.read()
    topic.consumer.close()
    assert (message.partition(), message.key(), message.value()) == (3, b"key", poison)
    assert message.headers() == [("trace", b"abc")]

    assert command("dead-letters", "discard", "--all").exit_code == 0
    assert command.json("dead-letters", "list") == []
    assert len(command.json("dead-letters", "list", "--state", "all")) == 4
    misused = command("dead-letters", "discard", "1", "--all")
    assert misused.exit_code == 2
    assert "there is no dead letter 99" in command("dead-letters", "discard", "99").stderr


def test_a_run_is_redriven_with_its_key_and_its_attempts_numbered_on(
    installation: TestInstallation, command: Command
) -> None:
    with installation.connect() as connection:
        row = connection.execute(
            "INSERT INTO cronstream.job_definitions (tenant, name, cron, handler)"
            " VALUES ('acme', 'report', '0 0 1 1 *', 'log') RETURNING job_id"
        ).fetchone()
    assert row is not None
    job_id: int = row[0]
    letters = Letters(installation)
    installation.start("streams.alerts", "a1")
    letters.run(job_id)
    letters.run(job_id + 1)
    letters.flush()
    eventually(lambda: rows(installation) == 2, within=60)
    answer = command("dead-letters", "redrive", "--reason", "exhausted")
    assert answer.exit_code == 1
    assert f"job {job_id} runs again, its attempts numbered on from 5" in answer.stdout
    assert f"there is no job {job_id + 1} any more" in answer.stderr
    with installation.connect() as connection:
        requests = connection.execute("SELECT kind, job_id, answer FROM cronstream.requests").fetchall()
    (request,) = requests
    assert request[:2] == ("redrive", job_id)
    assert request[2]["idempotency_key"] == f"{job_id}-{NOW}-0"
    assert request[2]["attempt"] == 6
    (left,) = command.json("dead-letters", "list")
    assert left["job_ids"] == [job_id + 1]


def test_history_by_hand(installation: TestInstallation, command: Command, tmp_path: Path) -> None:
    with installation.connect() as connection:
        connection.execute("SELECT cronstream.ensure_job_runs_partition('2026-01-05', alone => true)")
        connection.execute(
            "INSERT INTO cronstream.job_runs (job_id, scheduled_time, attempt, outcome)"
            " VALUES (1, '2026-01-05T12:00Z', 1, 'succeeded')"
        )
    day = "2026-01-05"
    folder = ["--folder", tmp_path]
    (made,) = command.json("history", "export", day, *folder)
    assert (made["file"], made["rows"]) == ("job_runs_20260105.parquet", 1)
    assert len(command.json("runs", "list", "1")) == 1
    assert command("history", "export", day, "--drop", *folder).exit_code == 0
    assert command.refusal("runs", "list", "1").endswith("there is no job 1, and no history of one")
    assert command.refusal("history", "export", day, *folder) == (
        "cronstream: Postgres has no rows of 2026-01-05; they are in job_runs_20260105.parquet"
    )
    (listed,) = [one for one in command.json("history", "list") if one["day"] == day]
    assert (listed["partition"], listed["rows"]) == (None, 1)
    assert command("history", "restore", day, *folder).exit_code == 0
    assert len(command.json("runs", "list", "1")) == 1
    assert command.refusal("history", "restore", "2026-01-06", *folder) == "cronstream: no file of 2026-01-06 is known"
    assert command("history", "restore", day).exit_code == 2
