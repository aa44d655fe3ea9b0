"""``python -m streams.alerts``: dead letters into ``cronstream.dead_letters``, and alerts about them.

    dead-letter ──► letters ──► cronstream.dead_letters
                       └──────► groups ──► topic alerts ──► webhook

An offset is committed once its letter is stored and told of. Alerts do not wait for Postgres: while it is away
letters are held, up to a bound, and told of all the same. A crash tells some of them twice.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from typing import Any

import orjson
import psycopg
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from cronstream import logs, pulse
from cronstream.clock import Clock, SystemClock, to_datetime
from cronstream.settings import AlertSettings, SettingsError, read_settings
from sql.connection import connect
from streams.consuming import commit, consumer_of, record_of, say_assigned
from streams.grouping import Alert, Grouping
from streams.letter_store import LetterStore
from streams.letters import DeadLetter, read_letter
from streams.pauses import Pauses, places_of
from streams.webhook import Webhook

log = logging.getLogger("streams.alerts")  # not __main__

READ_AT_ONCE = 500
READ_SECONDS = 0.1
MOST_HELD = 20_000
"""Letters that wait for Postgres; beyond it none is read."""
STORE_AGAIN_SECONDS = 1.0
FLUSH_SECONDS = 10.0
STOP_SECONDS = 1.0


class Alerts:
    """One consumer of dead letters. ``run`` until ``stop``."""

    def __init__(self, settings: AlertSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._stop = threading.Event()
        self._store = LetterStore(lambda: connect(settings, "alerts"))
        self._grouping = Grouping(settings.alert_first_seconds, settings.alert_window_seconds)
        self._unstored: list[DeadLetter] = []
        self._store_again_ns = 0
        self._untold: list[Alert] = []
        self._read: dict[int, int] = {}
        self._at_end: set[int] = set()
        """Partitions of which everything that is there was read."""
        self._committed: dict[int, int] = {}
        url = settings.alert_webhook_url
        self._webhook = None if url is None else Webhook(settings, url)
        self._producer = Producer(
            {
                "bootstrap.servers": settings.kafka,
                "client.id": f"{settings.node}-alerts",
                "enable.idempotence": True,
                "message.timeout.ms": 0,  # for as long as Kafka is away
                "logger": log.getChild("librdkafka"),
            }
        )
        self._consumer = consumer_of(settings, "alerts", log, {"enable.partition.eof": True})
        self._pauses = Pauses(self._consumer)

    def stop(self, *_: Any) -> None:
        """End after the round under way."""
        self._stop.set()

    def run(self) -> None:
        """Read, store, tell and commit until told to stop."""
        self._consumer.subscribe([self._settings.topics.dead_letter], on_assign=say_assigned, on_revoke=self._forget)
        if self._webhook is not None:
            self._webhook.start()
        log.info("Dead letters are watched", extra={"action": "start", "node": self._settings.node})
        try:
            pulse.watch("the alerts' loop")
            while not self._stop.is_set():
                pulse.beat()
                caught_up = self._take()
                self._keep()
                self._tell(caught_up)
                self._commit()
        finally:
            pulse.rest()
            self._consumer.close()
            self._store.close()
            if self._webhook is not None:
                self._webhook.stop(STOP_SECONDS)
            log.info("Dead letters are not watched any more", extra={"action": "stop"})

    def _take(self) -> bool:
        """Read what is there. True if that was all."""
        full = len(self._unstored) >= MOST_HELD
        self._pauses.only(places_of(self._consumer.assignment()) if full else ())
        messages = self._consumer.consume(READ_AT_ONCE, READ_SECONDS)
        now = self._clock.boot_ns()
        for message in messages:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                self._at_end.add(message.partition() or 0)
                continue
            if error is not None:
                log.warning("Kafka says: %s", error.str(), extra={"action": "consume", "code": error.name()})
                continue
            _, timestamp_ms = message.timestamp()
            letter = read_letter(record_of(message), to_datetime(max(timestamp_ms, 0) * 1000))
            self._unstored.append(letter)
            self._grouping.add(letter, now)
            self._read[letter.letter_partition] = letter.letter_offset + 1
            self._at_end.discard(letter.letter_partition)
        return all(place.partition in self._at_end for place in self._consumer.assignment())

    def _keep(self) -> None:
        """Store letters, or hold them until Postgres is back."""
        if not self._unstored or self._clock.boot_ns() < self._store_again_ns:
            return
        try:
            self._store.keep(self._unstored)
        except psycopg.OperationalError as error:
            self._store_again_ns = self._clock.boot_ns() + round(STORE_AGAIN_SECONDS * 1e9)
            known = {"action": "store", "letters": len(self._unstored)}
            log.warning("Postgres does not take dead letters, waiting: %s", error, extra=known)
            return
        self._unstored = []

    def _tell(self, caught_up: bool) -> None:
        for alert in self._grouping.due(self._clock.boot_ns(), caught_up=caught_up):
            body = alert.body
            key = f"{body['tenant']}/{body['name']}" if body["name"] else str(body["reason"])
            self._producer.produce(self._settings.topics.alerts, orjson.dumps(body), key)
            known = {"action": "alert", "reason": body["reason"], "job_id": body["job_id"], "count": body["count"]}
            log.warning("Dead letters: %s", body["see"], extra=known)
            self._untold.append(alert)
        if self._untold and self._producer.flush(FLUSH_SECONDS) == 0:
            self._untold = []

    def _commit(self) -> None:
        """Up to where every letter is stored and told of."""
        done = {partition: self._done(partition) for partition in self._read}
        news = {partition: offset for partition, offset in done.items() if self._committed.get(partition) != offset}
        if not news:
            return
        if commit(self._consumer, self._settings.topics.dead_letter, news, "letters will come again"):
            self._committed |= news

    def _done(self, partition: int) -> int:
        first_held = [
            *(letter.letter_offset for letter in self._unstored if letter.letter_partition == partition),
            *(alert.begins[partition] for alert in self._untold if partition in alert.begins),
        ]
        untold = self._grouping.first_untold(partition)
        return min([self._read[partition], *first_held, *([] if untold is None else [untold])])

    def _forget(self, _: Consumer, revoked: list[TopicPartition]) -> None:
        """Whoever takes the partitions over reads from what is committed; what is held here is told of all the same."""
        for place in revoked:
            self._read.pop(place.partition, None)
            self._committed.pop(place.partition, None)
            self._at_end.discard(place.partition)


def main() -> None:
    """Settings → alerts; SIGTERM ends it after the round under way."""
    try:
        settings = read_settings(AlertSettings, os.environ)
        logs.set_up(settings.log_level)
        alerts = Alerts(settings, SystemClock())
    except SettingsError as error:
        sys.exit(f"streams.alerts: {error}")
    signal.signal(signal.SIGTERM, alerts.stop)
    signal.signal(signal.SIGINT, alerts.stop)
    alerts.run()


if __name__ == "__main__":
    main()
