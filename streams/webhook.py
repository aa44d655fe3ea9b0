"""Alerts to a webhook, in order, each until it is taken: a consumer of the alerts topic with a place of its own.

2xx: taken. Other answers and silence: tried again, at most half a minute apart; but 4xx that no
repetition mends (all but 408, 425 and 429) is logged, and the next alert goes on. A webhook
may see an alert twice: ``alert_id`` is how it tells.
"""

from __future__ import annotations

import logging
import threading
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka import Consumer, KafkaException, TopicPartition

from cronstream.settings import AlertSettings, read_secret

log = logging.getLogger("streams.webhook")

ANSWER_SECONDS = 5.0
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0
_AGAIN = frozenset({408, 425, 429})


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """An alert goes where the settings say, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Webhook:
    """``start`` a thread; ``stop`` it. Only where a URL is configured."""

    def __init__(self, settings: AlertSettings, url: str) -> None:
        self._settings = settings
        self._url = url
        self._where = urlsplit(url).hostname
        token = read_secret("alert_webhook_token_file", settings.alert_webhook_token_file)
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._opener = urllib.request.build_opener(_NoRedirects)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End; what was not taken is sent by the next process."""
        self._stop.set()
        self._thread.join(seconds)

    def post(self, body: bytes) -> bool:
        """Offer an alert once; False if it must be offered again."""
        request = urllib.request.Request(self._url, body, self._headers, method="POST")  # noqa: S310 (http, https)
        try:
            with self._opener.open(request, timeout=ANSWER_SECONDS):
                return True
        except urllib.error.HTTPError as error:
            error.close()
            known = {"action": "webhook", "host": self._where, "status": error.code}
            if 400 <= error.code < 500 and error.code not in _AGAIN:
                log.error("The webhook refuses an alert, which is skipped: %s", body.decode(), extra=known)
                return True
            log.warning("The webhook answers %d, trying again", error.code, extra=known)
            return False
        except OSError as error:
            log.warning("The webhook does not answer, trying again: %r", error, extra={"action": "webhook"})
            return False

    def _run(self) -> None:
        consumer = self._consumer()
        consumer.subscribe([self._settings.topics.alerts], on_assign=_begin_where_it_ends)
        wait = FIRST_WAIT_SECONDS
        while not self._stop.is_set():
            try:
                taken = self._next(consumer)
            except KafkaException as error:
                log.warning("Kafka does not go along, trying again: %s", error, extra={"action": "webhook"})
                taken = False
            if taken:
                wait = FIRST_WAIT_SECONDS
            else:
                self._stop.wait(wait)
                wait = min(wait * 2, LONGEST_WAIT_SECONDS)
        consumer.close()

    def _next(self, consumer: Consumer) -> bool:
        """Offer the next alert, if there is one; False if it must be offered again. Raises KafkaException."""
        message: Any = consumer.poll(0.2)
        if message is None or message.error() is not None:
            return True
        if self.post(message.value() or b""):
            consumer.commit(message=message, asynchronous=False)
            return True
        consumer.seek(TopicPartition(message.topic(), message.partition(), message.offset()))
        return False

    def _consumer(self) -> Consumer:
        settings = self._settings
        return Consumer(
            {
                "bootstrap.servers": settings.kafka,
                "group.id": f"{settings.installation}-webhook",
                "client.id": settings.node,
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "session.timeout.ms": round(settings.session_timeout_seconds * 1000),
                "heartbeat.interval.ms": round(settings.session_timeout_seconds * 1000 / 6),
                "logger": log.getChild("librdkafka"),
            }
        )


def _begin_where_it_ends(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """A webhook that is new hears of what comes, not of two weeks past; noted at once, so no restart skips any."""
    for place in consumer.committed(partitions, timeout=10):
        if place.offset < 0:
            _, end = consumer.get_watermark_offsets(place, timeout=10)
            consumer.commit(offsets=[TopicPartition(place.topic, place.partition, end)], asynchronous=False)
    log.info("Alerts go to the webhook", extra={"action": "webhook_assigned", "partitions": len(partitions)})
