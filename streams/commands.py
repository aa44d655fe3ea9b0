"""``python -m streams.commands``: commands into SQL, their answers to the results topic.

    commands ──► decoded ──► cronstream.apply_command ──► answer acknowledged ──► offsets committed

The database stores each answer under the command's id in the transaction of its effect, so a command that
comes again, by its sender or after a crash in here, gets the same answer and changes nothing. Commands of
one partition are applied one after the other. One whose job somebody else's transaction holds waits, with those
behind it of its key, and is tried again until it is through; the others go on. Offsets are committed up to the
oldest that waits. While Postgres is away the process waits and takes nothing new. What cannot be read or applied
goes to the dead-letter topic as well.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import psycopg
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from cronstream import dead_letters, logs, pulse
from cronstream.clock import Clock, SystemClock
from cronstream.dead_letters import Headers, Record
from cronstream.fault_points import reach
from cronstream.settings import ConsumerSettings, SettingsError, read_settings
from sql.connection import connect
from sql.migrate import SchemaError, schema_version_check
from sql.queries import load
from streams.command_records import (
    PoisonCommand,
    RefusedCommand,
    Sender,
    decode,
    poison_answer,
    refusal,
    result_of,
    sender_of,
)
from streams.consuming import COOPERATIVE, commit, consumer_of, records_of, say_assigned
from streams.patience import Patience
from streams.waiting import Line, Waiting, line_of

log = logging.getLogger("streams.commands")  # not __main__
queries = load("commands")

FLUSH_SECONDS = 10.0
MOST_AT_ONCE = 100
MOST_WAITING = 1000
"""Of one partition; then it is not read on until there is room."""
LOCK_MS = 50
"""How long a command waits for a lock before the others go on without it; one try a turn costs them so much."""
TELL_SECONDS = 10.0
STAGE = "commands"
Answer = dict[str, Any]


class Applier:
    """Applies commands in their order, on one connection that is made anew after it broke."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._connection: psycopg.Connection[Any] | None = None

    def answers(self, records: Sequence[Record]) -> list[Answer | None]:
        """What becomes of each; None: it waits for a lock, or behind one of its line that does.

        Raises psycopg.OperationalError (and only that) while the database is away.
        """
        try:
            return self._together(records)
        except (psycopg.Error, SchemaError) as error:
            self.close()
            raise psycopg.OperationalError(str(error)) from error

    def _together(self, records: Sequence[Record]) -> list[Answer | None]:
        """In one transaction; one by one where a command breaks it or waits."""
        connection = self._connected()
        answers: list[Answer | None] = []
        waiting: set[Line] = set()
        line = None
        try:
            with connection.transaction():
                for record in records:
                    line = line_of(record)
                    answers.append(self._answer(record))
            return answers
        except psycopg.errors.LockNotAvailable:
            waiting.update(() if line is None else (line,))
        except psycopg.DatabaseError as error:
            if _passes(error):
                raise
        return [self._in_line(record, waiting) for record in records]

    def _in_line(self, record: Record, waiting: set[Line]) -> Answer | None:
        """None where its line waits; ``waiting`` learns of it."""
        if line_of(record) in waiting:
            return None
        try:
            return self._alone(record)
        except psycopg.errors.LockNotAvailable:
            waiting.add(line_of(record))
            return None

    def _alone(self, record: Record) -> Answer:
        """A command that the database cannot take is refused for good."""
        try:
            return self._answer(record)
        except psycopg.DatabaseError as error:
            if _passes(error):
                raise
            log.exception("A command failed in the database", extra={"action": "apply", "record": record.place})
            failure = _failure(error)
        sender = sender_of(record.value)
        try:
            return self._refuse(sender, failure)
        except psycopg.DatabaseError as error:
            if _passes(error):
                raise
            log.exception("A refusal cannot be stored; it is answered all the same", extra={"action": "refuse"})
            return refusal(sender, failure)

    def close(self) -> None:
        """Drop the connection; the next command makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _answer(self, record: Record) -> Answer:
        try:
            decode(record.key, record.value)
        except PoisonCommand as poison:
            return poison_answer(record, str(poison))
        except RefusedCommand as refused:
            return self._refuse(refused.sender, refused.error)
        return self._ask("apply_command", {"command": (record.value or b"").decode()})

    def _refuse(self, sender: Sender, error: dict[str, str]) -> Answer:
        return self._ask("refuse_command", {**sender.model_dump(), "error": orjson.dumps(error).decode()})

    def _ask(self, query: str, given: dict[str, Any]) -> Answer:
        row = self._connected().execute(queries[query], given).fetchone()
        assert row is not None
        answer: Answer = row[0]
        return answer

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = self._connect()
            schema_version_check(self._connection)
        return self._connection


def _passes(error: psycopg.DatabaseError) -> bool:
    """The same command would be taken a moment later: no connection, a deadlock, a full disk, a standby."""
    return isinstance(error, psycopg.OperationalError) or (error.sqlstate or "").startswith("25")


def _failure(error: psycopg.DatabaseError) -> dict[str, str]:
    said = error.diag
    known = {
        "message": said.message_primary or str(error),
        "detail": said.message_detail,
        "field": said.column_name or "command",
        "hint": said.message_hint or "Mend what the database names, then send the command under a new id.",
    }
    return {"code": "failed", **{name: text for name, text in known.items() if text}}


class Commands:
    """One consumer of commands. ``run`` until ``stop``."""

    def __init__(self, settings: ConsumerSettings, clock: Clock) -> None:
        self._settings = settings
        self._topic = settings.topics.commands
        self._stop = threading.Event()
        options = f"-c timezone=UTC -c lock_timeout={LOCK_MS}"
        self._applier = Applier(lambda: connect(settings, "commands", autocommit=True, options=options))
        self._producer = Producer(
            {
                "bootstrap.servers": settings.kafka,
                "client.id": f"{settings.node}-results",
                "enable.idempotence": True,
                "logger": log.getChild("librdkafka"),
            }
        )
        self._consumer = consumer_of(settings, "commands", log, COOPERATIVE)
        self._clock = clock
        self._patience = Patience(self._consumer, clock, self._stop)
        self._waiting = Waiting(MOST_WAITING)
        self._blocked: list[Record] = []
        """Of those that were tried last, the ones that wait for a lock."""
        self._waits_since_ns: int | None = None
        self._told_ns = 0
        self._undelivered: KafkaError | None = None

    def stop(self, *_: Any) -> None:
        """End after the commands under way."""
        self._stop.set()

    def run(self) -> None:
        """Apply until told to stop."""
        self._consumer.subscribe([self._topic], on_assign=say_assigned, on_revoke=self._left)
        log.info("Commands are taken", extra={"action": "start", "node": self._settings.node, "topic": self._topic})
        try:
            pulse.watch("the commands' loop")
            while not self._stop.is_set():
                pulse.beat()
                self._take()
        finally:
            pulse.rest()
            self._consumer.close()
            self._applier.close()
            log.info("Commands have stopped", extra={"action": "stop"})

    def _take(self) -> None:
        """What is there is applied and each answer acknowledged, then the offsets committed."""
        self._patience.pauses.only((self._topic, partition) for partition in self._waiting.full())
        first = self._consumer.poll(0.1)
        rest = [] if first is None else self._consumer.consume(MOST_AT_ONCE - 1, timeout=0)
        records = self._waiting.came(records_of([] if first is None else [first, *rest]))
        if records:
            if not self._applied(records):
                return
            self._waiting.wait(self._ours(self._blocked))
            reach("commands.answered")
        tried = self._try_again()
        self._tell_of_waiting()
        if moved := {record.partition for record in [*records, *tried]}:
            ours = moved & {place.partition for place in self._consumer.assignment()}
            commit(self._consumer, self._topic, self._waiting.done(ours), "commands will be answered again")

    def _applied(self, records: Sequence[Record]) -> bool:
        """Answered but for the ``_blocked``; False if told to stop before."""
        return self._patience.insist("apply", lambda: self._answered(records))

    def _try_again(self) -> list[Record]:
        """Those that wait, one line after the other until one waits still; what was tried."""
        tried: list[Record] = []
        while len(tried) < MOST_AT_ONCE and (line := self._waiting.first(MOST_AT_ONCE)):
            if not self._applied(line):
                break
            self._waiting.tried(line, self._blocked)
            tried += line
            if self._blocked:
                break
        return tried

    def _tell_of_waiting(self) -> None:
        now_ns = self._clock.boot_ns()
        if not len(self._waiting):
            self._waits_since_ns = None
        elif self._waits_since_ns is None:
            self._waits_since_ns = self._told_ns = now_ns
        elif now_ns - self._told_ns >= TELL_SECONDS * 1e9:
            self._told_ns = now_ns
            (one,) = self._waiting.first(1)
            seconds = round((now_ns - self._waits_since_ns) / 1e9)
            known = {"action": "wait", "seconds": seconds, "commands": len(self._waiting), "record": one.place}
            log.warning("Commands wait for other transactions, which hold what they change: %s", one.key, extra=known)

    def _left(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._waiting.forget(place.partition for place in partitions)

    def _ours(self, records: Sequence[Record]) -> list[Record]:
        """While it waited for Postgres a partition may have moved: its new owner begins before these records."""
        assigned = {place.partition for place in self._consumer.assignment()}
        return [record for record in records if record.partition in assigned]

    def _answered(self, records: Sequence[Record]) -> bool:
        """Applied, and every answer acknowledged; doing it again changes nothing and answers the same.

        Those that wait are ``_blocked`` then, and not answered.
        """
        ours = self._ours(records)
        try:
            answers = self._applier.answers(ours)
        except psycopg.OperationalError as error:
            log.warning("Postgres does not take commands, waiting: %s", error, extra={"action": "apply"})
            return False
        reach("commands.applied")
        self._undelivered = None
        self._blocked = [record for record, answer in zip(ours, answers, strict=True) if answer is None]
        for record, answer in zip(ours, answers, strict=True):
            if answer is None:
                continue
            key, value = result_of(record, answer)
            self._produce(self._settings.topics.command_results, key, value, [])
            if not answer["accepted"]:
                self._set_aside(record, answer)
        if self._producer.flush(FLUSH_SECONDS) or self._undelivered is not None:
            log.warning("Kafka does not take answers, waiting: %s", self._undelivered, extra={"action": "answer"})
            return False
        return True

    def _produce(self, topic: str, key: bytes | None, value: bytes, headers: Headers) -> None:
        self._producer.produce(topic, value, key, headers=[*headers], on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._undelivered = error

    def _set_aside(self, record: Record, answer: Answer) -> None:
        error = answer["error"]
        reason = dead_letters.POISON_RECORD if answer["id"] is None else dead_letters.REFUSED_COMMAND
        letter = dead_letters.letter_of(record, reason, error["message"], STAGE)
        log.warning(
            "Set aside: %s", error["message"], extra={"action": "dead_letter", "record": record.place, "reason": reason}
        )
        self._produce(self._settings.topics.dead_letter, letter.key, letter.value, letter.headers)


def main() -> None:
    """Settings → commands; SIGTERM ends it after the commands under way."""
    try:
        settings = read_settings(ConsumerSettings, os.environ)
    except SettingsError as error:
        sys.exit(f"streams.commands: {error}")
    logs.set_up(settings.log_level)
    commands = Commands(settings, SystemClock())
    signal.signal(signal.SIGTERM, commands.stop)
    signal.signal(signal.SIGINT, commands.stop)
    commands.run()


if __name__ == "__main__":
    main()
