"""``python -m streams.sink``: outcomes into history and the status of jobs in SQL, in batches, each row once.

    outcomes ──► rows ──► COPY, INSERT … ON CONFLICT DO NOTHING ──► offsets committed

Offsets are committed after the rows are, so a crash writes rows again and changes
nothing (``writer``). While Postgres is away the sink waits, keeps its place in the
group and takes nothing new. What cannot be read or stored goes to the dead-letter
topic, and the rest of its batch goes on. A thread beside it keeps the partitions
(``housekeeping``).
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import Any

import numpy as np
import psycopg
from confluent_kafka import KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from cronstream import dead_letters, garbage, logs, pulse
from cronstream.clock import Clock, SystemClock
from cronstream.dead_letters import Record
from cronstream.fault_points import reach
from cronstream.records import Batch, PoisonRecord
from cronstream.settings import HistorySettings, SettingsError, read_settings
from sql.connection import connect
from streams.consuming import COOPERATIVE, behind, commit, consumer_of, records_of, say_assigned
from streams.history import rows_of
from streams.housekeeping import Housekeeping
from streams.patience import Patience
from streams.writer import Heard, HistoryWriter

log = logging.getLogger("streams.sink")  # not __main__

FLUSH_SECONDS = 10.0
STOP_SECONDS = 2.0
STAGE = "history"


class Sink:
    """One consumer of outcomes. ``run`` until ``stop``."""

    def __init__(self, settings: HistorySettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._topic = settings.topics.outcomes
        self._known_topic_id: str | None = None
        self._stop = threading.Event()
        self._writer = HistoryWriter(lambda: connect(settings, "history"))
        self._housekeeping = Housekeeping(
            lambda: connect(settings, "retention"), settings.history_folder, settings.history_days, clock
        )
        self._producer = Producer(
            {
                "bootstrap.servers": settings.kafka,
                "client.id": f"{settings.node}-dead-letters",
                "enable.idempotence": True,
                "logger": log.getChild("librdkafka"),
            }
        )
        self._consumer = consumer_of(settings, "history", log, COOPERATIVE)
        self._patience = Patience(self._consumer, clock, self._stop)

    def stop(self, *_: Any) -> None:
        """End after the batch under way."""
        self._stop.set()

    def run(self) -> None:
        """Write until told to stop."""
        self._consumer.subscribe([self._topic], on_assign=say_assigned)
        self._housekeeping.start()
        log.info("History is written", extra={"action": "start", "node": self._settings.node, "topic": self._topic})
        try:
            pulse.watch("the sink")
            while not self._stop.is_set():
                self._write(self._gather())
        finally:
            pulse.rest()
            self._consumer.close()
            self._writer.close()
            self._housekeeping.stop(STOP_SECONDS)
            log.info("History has stopped", extra={"action": "stop"})

    def _gather(self) -> list[Record]:
        """What came within the linger, at most a batch of rows and a half."""
        records: list[Record] = []
        items = 0
        deadline: int | None = None
        while not self._stop.is_set() and items < self._settings.history_batch_items:
            pulse.beat()
            for record in records_of(self._consumer.consume(num_messages=50, timeout=0.05)):
                records.append(record)
                items += max(1, len(record.value or b"") // 200)
            now = self._clock.boot_ns()
            if deadline is None and records:
                deadline = now + round(self._settings.history_linger_seconds * 1e9)
            if deadline is not None and now >= deadline:
                break
        return records

    def _write(self, records: list[Record]) -> None:
        """Rows stored and dead letters acknowledged, then the offsets."""
        heard = [one for record in records if (one := self._read(record)) is not None]
        reach("sink.before")
        stored = self._patience.insist("store", lambda: self._store(heard))
        reach("sink.stored")
        if records and stored and self._patience.insist("flush", self._flushed):
            commit(self._consumer, self._topic, behind(records), "rows will be offered again")
            reach("sink.committed")

    def _read(self, record: Record) -> Heard | None:
        try:
            batch = Batch.decode(record.value)
        except PoisonRecord as error:
            self._set_aside(record, record.value, dead_letters.POISON_RECORD, str(error))
            return None
        rows, poison = rows_of(batch)
        if poison:
            items = batch.select(np.array([index for index, _ in poison], np.intp))
            self._set_aside(record, items.encode(), dead_letters.POISON_ITEM, poison[0][1])
        return Heard(record, batch, rows)

    def _store(self, heard: list[Heard]) -> bool:
        try:
            refused = self._writer.write(heard, self._topic_id())
        except psycopg.OperationalError as error:
            log.warning(
                "Postgres does not take rows, waiting: %s", error, extra={"action": "store", "records": len(heard)}
            )
            return False
        except KafkaException as error:
            log.warning("Kafka does not say which topic this is, waiting: %s", error, extra={"action": "store"})
            return False
        for record, row, why in refused:
            self._set_aside(record, record.value, dead_letters.POISON_ITEM, f"{row}: {why}")
        return True

    def _topic_id(self) -> str:
        """The topic's own id: one of the same name that was made anew has another, and offsets of its own."""
        if self._known_topic_id is None:
            admin = AdminClient({"bootstrap.servers": self._settings.kafka}, logger=log.getChild("librdkafka"))
            asked = admin.describe_topics(TopicCollection([self._topic]), request_timeout=5.0)
            self._known_topic_id = str(asked[self._topic].result().topic_id)
        return self._known_topic_id

    def _flushed(self) -> bool:
        return self._producer.flush(FLUSH_SECONDS) == 0

    def _set_aside(self, record: Record, value: bytes | None, reason: str, error: str) -> None:
        letter = dead_letters.letter_of(record, reason, error, STAGE, value)
        log.warning("Set aside: %s", error, extra={"action": "dead_letter", "record": record.place, "reason": reason})
        self._producer.produce(self._settings.topics.dead_letter, letter.value, letter.key, headers=[*letter.headers])


def main() -> None:
    """Settings → sink; SIGTERM ends it after the batch under way."""
    try:
        settings = read_settings(HistorySettings, os.environ)
    except SettingsError as error:
        sys.stderr.write(f"streams.sink: {error}\n")
        sys.exit(2)
    logs.set_up(settings.log_level)
    garbage.look_rarely()
    sink = Sink(settings, SystemClock())
    signal.signal(signal.SIGTERM, sink.stop)
    signal.signal(signal.SIGINT, sink.stop)
    sink.run()


if __name__ == "__main__":
    main()
