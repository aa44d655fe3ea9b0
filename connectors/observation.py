"""How the watchdog looks: the connector, its slot, and the last heartbeat delivered.

RUNNING proves nothing: a connector that reads nothing says so as well. The proof
is a heartbeat row that went through Postgres, Debezium and Kafka, so its age is
read from the topic, against the database's clock. A heartbeat may be long on its
way, though, behind a transaction of a million rows: so it is noted as well when
anything last moved.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any, Self

import psycopg
from confluent_kafka import Consumer, KafkaException, TopicPartition

from connectors.connect_api import ConnectApi, ConnectUnavailable
from connectors.seen import Observation, Progress, Slot
from cronstream.changes import Heartbeat, decode
from cronstream.records import PoisonRecord
from cronstream.settings import CaptureSettings
from sql import connect
from sql.queries import load

log = logging.getLogger("connectors.librdkafka")

_QUERIES = load("capture")
# How far back from the topic's end the first look begins: a heartbeat is seldom far.
_TAIL = 200


class Observer:
    """Looks. Holds a database connection and a consumer, and makes either anew when it broke."""

    def __init__(self, settings: CaptureSettings, api: ConnectApi, name: str, slot: str) -> None:
        self._settings = settings
        self._api = api
        self._name = name
        self._slot = slot
        self._conn: psycopg.Connection[Any] | None = None
        self._consumer = Consumer(
            {
                "bootstrap.servers": settings.kafka,
                "group.id": f"{settings.installation}-capture-watchdog",
                "enable.auto.commit": False,
                "logger": log,
            }
        )
        self._assigned = False
        self.last_heartbeat_us: int | None = None
        self._progress = Progress()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()
        self._disconnect()

    def look(self) -> Observation:
        """Ask all three. Takes a few seconds where one does not answer; raises nothing for that."""
        try:
            status, connect_answers = self._api.status(self._name), True
        except ConnectUnavailable:
            status, connect_answers = None, False
        delivered = self._read_heartbeats()
        try:
            now_us, slot = self._ask_postgres()
        except psycopg.Error:
            self._disconnect()
            return Observation(connect_answers, status, False, None, None)
        beat_us, moved_us = self.last_heartbeat_us, self._progress.moved_us(delivered, slot, now_us)
        return Observation(connect_answers, status, True, slot, _age(beat_us, now_us), _age(moved_us, now_us))

    def drop_slot(self) -> bool:
        """Drop the slot unless somebody reads it; whether it is gone. Raises psycopg.Error."""
        conn = self._database()
        conn.execute(_QUERIES["drop_slot"], {"slot": self._slot})
        return conn.execute(_QUERIES["slot"], {"slot": self._slot}).fetchone() is None

    def _ask_postgres(self) -> tuple[int, Slot | None]:
        conn = self._database()
        row = conn.execute(_QUERIES["now"]).fetchone()
        assert row is not None
        slot = conn.execute(_QUERIES["slot"], {"slot": self._slot}).fetchone()
        return row[0], None if slot is None else Slot(*slot)

    def _database(self) -> psycopg.Connection[Any]:
        if self._conn is None:
            self._conn = connect(self._settings, "capture", autocommit=True)
        return self._conn

    def _disconnect(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _read_heartbeats(self) -> int:
        """Note the newest; how many rows were delivered at all."""
        delivered = 0
        topic = self._settings.topics.changes
        try:
            if not self._assigned:
                low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=3)
                self._consumer.assign([TopicPartition(topic, 0, max(low, high - _TAIL))])
                self._assigned = True
            # Bounded: a flood of edits is looked through over several looks.
            for _ in range(20):
                messages = self._consumer.consume(1000, timeout=0.2)
                for message in messages:
                    if message.error() is None:
                        delivered += self._note(message.value())
                if len(messages) < 1000:
                    break
        except KafkaException:
            # The topic is not there yet, or the broker is away: the age says so.
            pass
        return delivered

    def _note(self, value: bytes | None) -> bool:
        """Whether it came out of Postgres: Debezium beats on its own as well."""
        try:
            event = decode(value)
        except PoisonRecord:
            return False
        if isinstance(event, Heartbeat):
            self.last_heartbeat_us = max(event.committed_us, self.last_heartbeat_us or 0)
        return event is not None


def _age(then_us: int | None, now_us: int) -> float | None:
    return None if then_us is None else max(0.0, (now_us - then_us) / 1e6)
