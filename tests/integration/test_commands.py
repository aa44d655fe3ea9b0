"""Commands on real servers: applied once, answered under their id, poison set aside, nothing lost."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.installation import TestInstallation
from tests.support.poll import eventually

DEFINITION = {"every": "1 hour", "handler": "log"}


class Desk:
    """Sends commands and collects what comes back."""

    def __init__(self, installation: TestInstallation) -> None:
        self.installation = installation
        kafka = installation.endpoints.kafka
        self._producer = Producer({"bootstrap.servers": kafka})
        topics = installation.topics
        self._consumer = Consumer({"bootstrap.servers": kafka, "group.id": "desk", "enable.auto.commit": False})
        self._consumer.assign(
            [
                TopicPartition(topic, partition, 0)
                for topic in (topics.command_results, topics.dead_letter)
                for partition in range(4)
            ]
        )
        self.answers: list[tuple[bytes | None, dict[str, Any]]] = []
        self.letters: list[tuple[bytes | None, dict[str, str]]] = []

    def send(self, value: bytes | None, key: bytes | None = None) -> None:
        self._producer.produce(self.installation.topics.commands, value, key)
        assert self._producer.flush(10) == 0

    def command(self, command: str, id: str, name: str = "job", **more: Any) -> None:
        body = {"command": command, "id": id, "name": name, **more}
        self.send(json.dumps(body).encode(), f"{more.get('tenant', 'default')}/{name}".encode())

    def poll(self) -> None:
        for message in self._consumer.consume(100, timeout=0.05):
            assert message.error() is None
            if message.topic() == self.installation.topics.dead_letter:
                headers = {name: value.decode() for name, value in message.headers() or []}
                self.letters.append((message.value(), headers))
            else:
                self.answers.append((message.key(), json.loads(message.value())))

    def answer(self, id: str | None, count: int = 1) -> list[dict[str, Any]]:
        """The answers to that id, once there are so many."""

        def found() -> list[dict[str, Any]] | None:
            self.poll()
            answers = [answer for _, answer in self.answers if answer["id"] == id]
            return answers if len(answers) >= count else None

        return eventually(found, within=40, says=f"{count} answers to {id}")

    def letter(self, reason: str) -> tuple[bytes | None, dict[str, str]]:
        def found() -> tuple[bytes | None, dict[str, str]] | None:
            self.poll()
            return next((letter for letter in self.letters if letter[1]["cronstream-reason"] == reason), None)

        return eventually(found, within=20, says=f"a dead letter because of {reason}")

    def committed(self) -> int:
        """How many commands are behind the offsets of those who apply them."""
        kafka, topics = self.installation.endpoints.kafka, self.installation.topics
        group = Consumer({"bootstrap.servers": kafka, "group.id": f"{self.installation.name}-commands"})
        places = group.committed([TopicPartition(topics.commands, partition) for partition in range(4)], 10)
        group.close()
        return sum(max(place.offset, 0) for place in places)

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def desk(installation: TestInstallation) -> Iterator[Desk]:
    desk = Desk(installation)
    yield desk
    desk.close()


def jobs(installation: TestInstallation) -> list[tuple[str, bool]]:
    with installation.connect() as connection:
        return connection.execute("SELECT name, enabled FROM cronstream.job_definitions ORDER BY name").fetchall()


def test_commands_of_one_job_are_applied_in_order_and_answered_under_their_key(
    installation: TestInstallation, desk: Desk
) -> None:
    installation.start("streams.commands", "commands")
    desk.command("upsert", "1", definition=DEFINITION)
    desk.command("pause", "2")
    desk.command("run-now", "3")
    desk.command("patch", "4", changes={"every": None, "cron": "@daily"})
    desk.command("resume", "5")
    desk.command("delete", "6")
    desk.command("resume", "7")
    desk.answer("7")
    assert [answer["id"] for _, answer in desk.answers] == list("1234567")
    assert [answer["accepted"] for _, answer in desk.answers] == [True] * 6 + [False]
    assert {key for key, _ in desk.answers} == {b"default/job"}
    assert desk.answers[-1][1]["error"]["message"] == "there is no job default/job"
    assert jobs(installation) == []


def test_a_repeated_id_is_answered_the_same_and_changes_nothing(installation: TestInstallation, desk: Desk) -> None:
    installation.start("streams.commands", "commands")
    desk.command("upsert", "1", definition=DEFINITION)
    desk.command("run-now", "2")
    desk.command("run-now", "2")
    desk.command("upsert", "bad", name="other", definition={"cron": "61 * * * *", "handler": "log"})
    desk.command("upsert", "bad", name="other", definition=DEFINITION)
    first, second = desk.answer("2", 2)
    assert first == second
    refused, again = desk.answer("bad", 2)
    assert refused == again
    assert jobs(installation) == [("job", True)]
    with installation.connect() as connection:
        assert connection.execute("SELECT count(*) FROM cronstream.open_requests").fetchone() == (1,)


def test_a_command_that_cannot_be_applied_is_answered_by_field_with_a_remedy(
    installation: TestInstallation, desk: Desk
) -> None:
    installation.start("streams.commands", "commands")
    desk.command("upsert", "sql", definition={"cron": "61 * * * *", "handler": "log"})
    desk.command("upsert", "model", definition={"crn": "* * * * *", "handler": "log"})
    desk.command("run-nw", "name")
    (by_sql,), (by_model,), (by_name,) = desk.answer("sql"), desk.answer("model"), desk.answer("name")
    assert (by_sql["error"]["field"], by_sql["error"]["code"]) == ("cron", "invalid")
    assert by_sql["error"]["hint"]
    assert "61" in by_sql["error"]["message"] + by_sql["error"]["detail"]
    assert (by_model["error"]["field"], by_model["error"]["hint"]) == ("crn", "Did you mean cron?")
    assert (by_name["command"], by_name["error"]["field"]) == ("unknown", "command")
    value, headers = desk.letter("refused_command")
    assert json.loads(value or b"")["id"] in ("sql", "model", "name")
    assert headers["cronstream-topic"] == installation.topics.commands


def test_numbers_are_stored_as_they_are_written(installation: TestInstallation, desk: Desk) -> None:
    installation.start("streams.commands", "commands")
    written = '{"exact": 0.12345678901234567890123, "large": 123456789012345678901234567890}'
    desk.send(
        b'{"command": "one-shot", "id": "1", "name": "job", "run_at": "2030-01-01T00:00:00Z", "handler": "log", '
        b'"payload": ' + written.encode() + b"}"
    )
    assert desk.answer("1")[0]["accepted"] is True
    with installation.connect() as connection:
        stored = connection.execute("SELECT payload::text, run_at FROM cronstream.job_definitions").fetchone()
    assert stored is not None
    assert (stored[0], stored[1].isoformat()) == (written, "2030-01-01T00:00:00+00:00")


def test_a_number_is_refused_by_its_field_or_stored_whatever_its_size(
    installation: TestInstallation, desk: Desk
) -> None:
    installation.start("streams.commands", "commands")
    text = '{"command": "upsert", "id": "%s", "name": "%s", "definition": {"cron": "@daily", "handler": "log", %s}}'
    for id, column in (
        ("5,000 digits", '"payload": ' + "9" * 5000),
        ("too large for a row", '"timeout_seconds": 1e400'),
        ("too large for a payload", '"payload": {"x": 1e100000}'),
        ("too large for the database", '"payload": {"x": 1e200000}'),
    ):
        desk.send((text % (id, id, column)).encode())
    assert desk.answer("5,000 digits")[0]["accepted"] is True
    for id, field, says in (
        ("too large for a row", "timeout_seconds", "must be more than 0 and at most 86400"),
        ("too large for a payload", "payload", "more than 65536"),
        ("too large for the database", "payload.x", "is a number that the database does not hold"),
    ):
        error = desk.answer(id)[0]["error"]
        assert (error["code"], error["field"]) == ("invalid", field)
        assert says in error["message"]
        assert error["hint"]
    with installation.connect() as connection:
        stored = connection.execute("SELECT payload::text FROM cronstream.job_definitions").fetchall()
    assert stored == [("9" * 5000,)]


def test_one_that_breaks_the_database_s_transaction_is_refused_and_the_others_are_applied(
    installation: TestInstallation, desk: Desk
) -> None:
    with installation.connect() as connection:
        connection.execute("CREATE FUNCTION cronstream.no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE; END'")
        connection.execute(
            "CREATE TRIGGER no BEFORE INSERT ON cronstream.job_definitions FOR EACH ROW WHEN (NEW.name = 'breaks')"
            " EXECUTE FUNCTION cronstream.no()"
        )
    for number in range(5):
        desk.command("upsert", str(number), name="breaks" if number == 2 else f"job-{number}", definition=DEFINITION)
    installation.start("streams.commands", "commands")
    answers = [desk.answer(str(number))[0] for number in range(5)]
    assert [answer["accepted"] for answer in answers] == [True, True, False, True, True]
    assert answers[2]["error"]["code"] == "failed"
    assert answers[2]["error"]["field"]
    assert answers[2]["error"]["hint"]
    assert [name for name, _ in jobs(installation)] == ["job-0", "job-1", "job-3", "job-4"]


def test_poison_is_set_aside_and_holds_nothing_up(installation: TestInstallation, desk: Desk) -> None:
    installation.start("streams.commands", "commands")
    for value in (b"\x00\xff", b"{", b"[]", None, b'{"command": "run-now", "name": "job"}'):
        desk.send(value, b"default/job")
    desk.command("upsert", "good", definition=DEFINITION)
    desk.answer("good")
    answers = desk.answer(None, 5)
    assert {answer["error"]["code"] for answer in answers} == {"poison"}
    assert [answer["record"]["offset"] for answer in answers] == [0, 1, 2, 3, 4]
    desk.letter("poison_record")
    eventually(lambda: desk.poll() or len(desk.letters) == 5, within=10)
    assert jobs(installation) == [("job", True)]


@pytest.mark.parametrize("point", ["commands.applied:2", "commands.answered:2"])
def test_a_process_that_dies_between_two_effects_loses_and_doubles_nothing(
    installation: TestInstallation, desk: Desk, point: str
) -> None:
    """Its successor takes the same commands again and tells the same answers."""
    first = installation.start("streams.commands", "first", fault_point=point)
    desk.command("upsert", "make", definition=DEFINITION)
    desk.answer("make")
    for number in range(300):
        desk.command("run-now", f"run-{number}")
    assert first.wait(30) == -signal.SIGKILL
    installation.start("streams.commands", "second")
    desk.answer("run-299")
    by_id: dict[str, list[dict[str, Any]]] = {}
    for _, answer in desk.answers:
        by_id.setdefault(answer["id"], []).append(answer)
    assert len(by_id) == 301
    assert all(answer == answers[0] for answers in by_id.values() for answer in answers)
    with installation.connect() as connection:
        assert connection.execute("SELECT count(*) FROM cronstream.open_requests").fetchone() == (300,)


def test_while_postgres_takes_nothing_commands_wait(installation: TestInstallation, desk: Desk) -> None:
    with installation.connect() as connection:
        connection.execute("ALTER TABLE cronstream.schema_migrations RENAME TO moved_away")
        installation.start("streams.commands", "commands")
        desk.command("upsert", "1", definition=DEFINITION)
        eventually(lambda: "Postgres does not take commands" in installation.log_of("commands"), within=20)
        desk.poll()
        assert desk.answers == []
        connection.execute("ALTER TABLE cronstream.moved_away RENAME TO schema_migrations")
    assert desk.answer("1")[0]["accepted"] is True


def test_after_kafka_was_away_longer_than_a_session_while_it_was_to_take_answers_commands_are_taken_again(
    installation: TestInstallation, desk: Desk
) -> None:
    """The group gives the process up while it waits with its partitions paused, and takes it in again."""
    installation.start("streams.commands", "commands")
    desk.command("upsert", "first", definition=DEFINITION)
    desk.answer("first")
    with installation.connect() as watcher, installation.connect(autocommit=False) as connection:
        connection.execute("LOCK cronstream.job_definitions")
        desk.command("upsert", "held", definition=DEFINITION)
        eventually(lambda: _someone_waits(watcher), within=20, says="the command is under way")
        installation.endpoints.kill("kafka")
    try:
        away = "Kafka does not take answers"
        eventually(lambda: installation.log_of("commands").count(away) >= 2, within=60, every=0.2, says=away)
    finally:
        installation.endpoints.start("kafka")
    for number in range(8):
        desk.command("upsert", f"after-{number}", name=f"job-{number}", definition=DEFINITION)
    desk.answer("held")
    for number in range(8):
        desk.answer(f"after-{number}")


def _someone_waits(watcher: psycopg.Connection[Any]) -> bool:
    row = watcher.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
    return row is not None and row[0] > 0
