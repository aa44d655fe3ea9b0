"""``kafka``: one record a run, to a topic that is not the installation's own.

Payload: ``{"topic": "…", "value"?: any JSON, "key"?: "…", "headers"?: {…}}``. A
string is sent as its text, null as a record without a value, anything else as
JSON; without a value the record is an envelope that says which run it is. The
identity travels in the headers.

The record is written once however often the client sends it (idempotent, all
replicas), but a run that is cut off after it was sent may be tried again: the
key of the run is in its headers.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future
from functools import partial

import msgspec
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from cronstream.clock import Clock
from cronstream.settings import WorkerSettings
from workers.attempt import Attempt, BadPayload, PayloadReader, Result, failed, refused, succeeded
from workers.handlers.http import envelope

KNOWN_SECONDS = 60
"""How long a topic that was there is believed to be there."""
ASK_SECONDS = 10
DELIVERY_SECONDS = 120
HEADER = "cronstream-"

LIBRDKAFKA = logging.getLogger("workers.librdkafka")
Headers = list[tuple[str, str | bytes | None]]

_FINAL = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_RECORD,
        KafkaError.POLICY_VIOLATION,
    }
)


class ToProduce(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The payload of a ``kafka`` job."""

    topic: str
    value: msgspec.Raw = msgspec.Raw()
    key: str | None = None
    headers: dict[str, str] = {}


_payloads = PayloadReader(ToProduce, "a record to produce")


class KafkaHandler:
    """Owns a producer, made when it is first needed and shared by all runs."""

    def __init__(self, settings: WorkerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._client: Client | None = None
        self._known: dict[str, int] = {}
        """Topics that were there, and until when that is believed (boot time)."""

    async def run(self, attempt: Attempt) -> Result:
        asked = _payloads.read(attempt)
        if is_reserved(asked.topic, self._settings.installation):
            return refused(f"topic {asked.topic[:250]} is the installation's or Kafka's own")
        try:
            value = value_of(asked, attempt)
            client = self._ready()
            if not await self._is_there(client, asked.topic):
                return refused(f"topic {asked.topic[:250]} does not exist; it is not made by itself")
            key = None if asked.key is None else asked.key.encode()
            message = await client.send(asked.topic, value, key, headers_of(asked, attempt))
        except UnicodeEncodeError:
            raise BadPayload("the payload has a lone surrogate, which is no text") from None
        except KafkaException as problem:
            error: KafkaError = problem.args[0]
            return failed(f"Kafka: {error.str()}", final=error.code() in _FINAL)
        place = {"topic": asked.topic, "partition": message.partition(), "offset": message.offset()}
        return succeeded(msgspec.json.encode(place).decode())

    async def close(self) -> None:
        if self._client is not None:
            await asyncio.to_thread(self._client.close)

    def _ready(self) -> Client:
        if self._client is not None and self._client.is_broken:
            # An idempotent producer that lost its place says so for good.
            threading.Thread(target=self._client.close, daemon=True).start()
            self._client = None
        if self._client is None:
            self._client = Client(self._settings)
        return self._client

    async def _is_there(self, client: Client, topic: str) -> bool:
        if self._known.get(topic, 0) < self._clock.boot_ns():
            if not await client.has_topic(topic):
                return False
            self._known[topic] = self._clock.boot_ns() + KNOWN_SECONDS * 1_000_000_000
        return True


def is_reserved(topic: str, installation: str) -> bool:
    """Whether a topic is the installation's own, Kafka's or Connect's: a job must not forge their records."""
    return topic == installation or topic.startswith((f"{installation}.", f"{installation}-", "_"))


def value_of(asked: ToProduce, attempt: Attempt) -> bytes | None:
    """The record's value. Raises UnicodeEncodeError."""
    raw = bytes(asked.value)
    if not raw:
        return msgspec.json.encode(envelope(attempt))
    value = msgspec.json.decode(raw)
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else raw


def headers_of(asked: ToProduce, attempt: Attempt) -> Headers:
    """The payload's headers, then the identity, whose names are not the payload's to use."""
    own = {HEADER + name.replace("_", "-"): str(value) for name, value in attempt.identity.items()}
    asked_for = {name: text for name, text in asked.headers.items() if name.lower() not in own}
    return [(name, text.encode()) for name, text in {**asked_for, **own}.items()]


class Client:
    """A producer with the thread that serves its callbacks, and the same cluster's admin."""

    def __init__(self, settings: WorkerSettings) -> None:
        common: dict[str, str | int | float] = {
            "bootstrap.servers": settings.kafka,
            "client.id": f"{settings.node}-kafka-handler",
        }
        self.is_broken = False
        self._producer = Producer(
            {
                **common,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "delivery.timeout.ms": DELIVERY_SECONDS * 1000,
                # As Java's clients choose partitions.
                "partitioner": "murmur2_random",
                "error_cb": self._failed,
                "logger": LIBRDKAFKA,
            }
        )
        self._admin = AdminClient(common, logger=LIBRDKAFKA)
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="kafka-handler", daemon=True)
        self._thread.start()

    async def has_topic(self, topic: str) -> bool:
        """Ask the cluster; asking does not make the topic. Raises KafkaException."""
        asked = self._admin.describe_topics(TopicCollection([topic]), request_timeout=ASK_SECONDS)
        try:
            await asyncio.wrap_future(asked[topic])
        except KafkaException as problem:
            if problem.args[0].code() in _FINAL:
                return False
            raise
        return True

    async def send(self, topic: str, value: bytes | None, key: bytes | None, headers: Headers) -> Message:
        """Send a record and wait until every replica in sync has it. Raises KafkaException."""
        acknowledged: Future[Message] = Future()
        try:
            self._producer.produce(topic, value, key, headers=headers, on_delivery=partial(_settle, acknowledged))
        except BufferError:
            raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from None
        return await asyncio.wrap_future(acknowledged)

    def close(self) -> None:
        """Stop the thread. What nobody waits for any more may go unsent."""
        self._closing = True
        self._thread.join()

    def _serve(self) -> None:
        while not self._closing:
            self._producer.poll(0.1)

    def _failed(self, error: KafkaError) -> None:
        self.is_broken = self.is_broken or error.fatal()


def _settle(acknowledged: Future[Message], error: KafkaError | None, message: Message) -> None:
    """librdkafka's callback, in the serving thread. A run that was cut off no longer waits."""
    if not acknowledged.set_running_or_notify_cancel():
        return
    if error is not None:
        acknowledged.set_exception(KafkaException(error))
    else:
        acknowledged.set_result(message)
