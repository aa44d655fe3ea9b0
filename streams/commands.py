"""``python -m streams.commands``: commands into SQL, their answers to the results topic.

    commands ──► decoded ──► cronstream.apply_command ──► answer acknowledged ──► offsets committed

The database stores each answer under the command's id in the transaction of its effect, so a command that
comes again, by its sender or after a crash in here, gets the same answer and changes nothing. Commands of
one partition are applied one after the other. While Postgres is away the process waits and takes nothing
new. What cannot be read or applied goes to the dead-letter topic as well.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
import psycopg
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from cronstream import dead_letters, logs
from cronstream.clock import Clock, SystemClock
from cronstream.dead_letters import Record
from cronstream.fault_points import reach
from cronstream.settings import SettingsError, StreamsSettings, read_settings
from sql.connection import connect
from sql.migrate import SchemaError, schema_version_check
from sql.queries import load
from streams.command_records import (
    PoisonCommand,
    RefusedCommand,
    Sender,
    as_json,
    decode,
    poison_answer,
    refusal,
    result_of,
)
from streams.patience import Patience, record_of

log = logging.getLogger("streams.commands")  # not __main__
queries = load("commands")

FLUSH_SECONDS = 10.0
MOST_AT_ONCE = 100
STAGE = "commands"
Answer = dict[str, Any]


class Applier:
    """Applies one command at a time, on one connection that is made anew after it broke."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._connection: psycopg.Connection[Any] | None = None

    def answer(self, record: Record) -> Answer:
        """What becomes of the record. Raises psycopg.OperationalError (and only that) while the database is away."""
        try:
            return self._answer(record)
        except (psycopg.Error, SchemaError) as error:
            self.close()
            raise psycopg.OperationalError(str(error)) from error

    def close(self) -> None:
        """Drop the connection; the next command makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _answer(self, record: Record) -> Answer:
        try:
            command = decode(record.key, record.value)
        except PoisonCommand as poison:
            return poison_answer(record, str(poison))
        except RefusedCommand as refused:
            return self._refuse(refused.sender, refused.error)
        try:
            return self._ask("apply_command", {"command": as_json(command)})
        except psycopg.DatabaseError as error:
            if _passes(error):
                raise
            log.exception("A command failed in the database", extra={"action": "apply", "record": record.place})
            sender = Sender(id=command.id, tenant=command.tenant, name=command.name, kind=command.command)
            return self._refuse(sender, _failure(error))

    def _refuse(self, sender: Sender, error: dict[str, str]) -> Answer:
        given = {**sender.model_dump(), "error": orjson.dumps(error).decode()}
        try:
            return self._ask("refuse_command", given)
        except psycopg.DatabaseError as problem:
            if _passes(problem):
                raise
            log.exception("A refusal cannot be stored; it is answered all the same", extra={"action": "refuse"})
            return refusal(sender, error)

    def _ask(self, query: str, given: dict[str, Any]) -> Answer:
        if self._connection is None:
            self._connection = self._connect()
            schema_version_check(self._connection)
        row = self._connection.execute(queries[query], given).fetchone()
        assert row is not None
        answer: Answer = row[0]
        return answer


def _passes(error: psycopg.DatabaseError) -> bool:
    """The same command would be taken a moment later: no connection, a deadlock, a full disk, a standby."""
    return isinstance(error, psycopg.OperationalError) or (error.sqlstate or "").startswith("25")


def _failure(error: psycopg.DatabaseError) -> dict[str, str]:
    said = error.diag
    known = {"message": said.message_primary or str(error), "detail": said.message_detail, "hint": said.message_hint}
    return {"code": "failed", **{name: text for name, text in known.items() if text}}


class Commands:
    """One consumer of commands. ``run`` until ``stop``."""

    def __init__(self, settings: StreamsSettings, clock: Clock) -> None:
        self._settings = settings
        self._topic = settings.topics.commands
        self._stop = threading.Event()
        self._applier = Applier(lambda: connect(settings, "commands", autocommit=True))
        self._producer = Producer(
            {
                "bootstrap.servers": settings.kafka,
                "client.id": f"{settings.node}-results",
                "enable.idempotence": True,
                "logger": log.getChild("librdkafka"),
            }
        )
        session_ms = round(settings.session_timeout_seconds * 1000)
        self._consumer = Consumer(
            {
                "bootstrap.servers": settings.kafka,
                "group.id": f"{settings.installation}-commands",
                "client.id": settings.node,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "session.timeout.ms": session_ms,
                "heartbeat.interval.ms": session_ms // 6,
                "fetch.wait.max.ms": 50,
                "partition.assignment.strategy": "cooperative-sticky",
                "logger": log.getChild("librdkafka"),
            }
        )
        self._patience = Patience(self._consumer, clock, self._stop)

    def stop(self, *_: Any) -> None:
        """End after the command under way."""
        self._stop.set()

    def run(self) -> None:
        """Apply until told to stop."""
        self._consumer.subscribe([self._topic])
        log.info("Commands are taken", extra={"action": "start", "node": self._settings.node, "topic": self._topic})
        try:
            while not self._stop.is_set():
                self._take()
        finally:
            self._consumer.close()
            self._applier.close()
            log.info("Commands have stopped", extra={"action": "stop"})

    def _take(self) -> None:
        """What is there is applied, each answer acknowledged, then the offsets committed."""
        done: list[Record] = []
        first = self._consumer.poll(0.1)
        for message in [] if first is None else [first, *self._consumer.consume(MOST_AT_ONCE, timeout=0)]:
            error = message.error()
            if error is not None:
                log.warning("Kafka says: %s", error.str(), extra={"action": "consume", "code": error.name()})
                continue
            record = record_of(message)
            if not self._patience.insist("apply", partial(self._apply, record)):
                break
            done.append(record)
        done = [record for record in done if self._is_ours(record)]
        if done and self._patience.insist("flush", lambda: self._producer.flush(FLUSH_SECONDS) == 0):
            reach("commands.answered")
            self._commit(done)

    def _is_ours(self, record: Record) -> bool:
        """While it waited for Postgres a partition may have moved: its new owner begins before this record."""
        return any(place.partition == record.partition for place in self._consumer.assignment())

    def _apply(self, record: Record) -> bool:
        if not self._is_ours(record):
            return True
        try:
            answer = self._applier.answer(record)
        except psycopg.OperationalError as error:
            log.warning("Postgres does not take commands, waiting: %s", error, extra={"action": "apply"})
            return False
        reach("commands.applied")
        key, value = result_of(record, answer)
        self._producer.produce(self._settings.topics.command_results, value, key)
        if not answer["accepted"]:
            self._set_aside(record, answer)
        return True

    def _set_aside(self, record: Record, answer: Answer) -> None:
        error = answer["error"]
        reason = dead_letters.POISON_RECORD if answer["id"] is None else dead_letters.REFUSED_COMMAND
        letter = dead_letters.letter_of(record, reason, error["message"], STAGE)
        log.warning(
            "Set aside: %s", error["message"], extra={"action": "dead_letter", "record": record.place, "reason": reason}
        )
        self._producer.produce(self._settings.topics.dead_letter, letter.value, letter.key, headers=[*letter.headers])

    def _commit(self, records: list[Record]) -> None:
        last = {record.partition: record.offset + 1 for record in records}
        offsets = [TopicPartition(self._topic, partition, offset) for partition, offset in last.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            log.warning("Offsets not committed, commands will be answered again: %s", error, extra={"action": "commit"})


def main() -> None:
    """Settings → commands; SIGTERM ends it after the command under way."""
    try:
        settings = read_settings(StreamsSettings, os.environ)
    except SettingsError as error:
        sys.exit(f"streams.commands: {error}")
    logs.set_up(settings.log_level)
    commands = Commands(settings, SystemClock())
    signal.signal(signal.SIGTERM, commands.stop)
    signal.signal(signal.SIGINT, commands.stop)
    commands.run()


if __name__ == "__main__":
    main()
