"""Says what happened: batches of outcomes, and dead letters, each until it is acknowledged.

``started`` is sent at once, because its run waits for the acknowledgement; ends
are collected for a moment. A batch on outcomes speaks of one attempts record.

Lives in the event loop; one thread of its own serves librdkafka's callbacks. A
record the broker does not take within ``DELIVERY_SECONDS`` ends the process:
what it took is taken over, with the done-log, by whoever comes next.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from cronstream import bodies, dead_letters
from cronstream.clock import Clock
from cronstream.fault_points import reach
from cronstream.records import MAX_ITEMS, Batch, Item, Kind, in_batches
from cronstream.settings import WorkerSettings
from workers.attempt import Result
from workers.run import Record, Run
from workers.text import clean

_Headers = list[tuple[str, str | bytes | None]]
logger = logging.getLogger(__name__)

COLLECT_SECONDS = 0.02
DELIVERY_SECONDS = 120
ERROR_BYTES = 4 * 1024
QUEUE_FULL_SECONDS = 0.05


class DeliveryFailed(RuntimeError):
    """The broker did not take a record."""


def producer_config(settings: WorkerSettings) -> dict[str, object]:
    """Idempotent, so that an outcome is written once whatever is retried."""
    return {
        "bootstrap.servers": settings.kafka,
        "client.id": f"{settings.node}-outcomes",
        "enable.idempotence": True,
        "acks": "all",
        "linger.ms": 0,
        "delivery.timeout.ms": DELIVERY_SECONDS * 1000,
        "queue.buffering.max.kbytes": 512 * 1024,
        "logger": logging.getLogger("workers.librdkafka"),
    }


class Reporter:
    """Owns the producer."""

    def __init__(
        self,
        settings: WorkerSettings,
        clock: Clock,
        *,
        on_finished: Callable[[Record, int], None],
        on_outcome: Callable[[int, int], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._on_finished = on_finished
        self._on_outcome = on_outcome
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._producer = Producer(producer_config(settings))
        self._outcomes = settings.topics.outcomes
        self._ends: dict[Record, list[Item]] = {}
        self._collected = 0
        self._timer: asyncio.TimerHandle | None = None
        self._unacknowledged: Counter[int] = Counter()
        self._changed = asyncio.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="outcomes", daemon=True)
        self._thread.start()

    def started(self, record: Record, runs: Sequence[Run], then: Callable[[Sequence[Run]], None]) -> None:
        """Say that ``runs`` are about to run; ``then`` is called once that is acknowledged."""
        items = (run.item(Kind.STARTED, bodies.pack(run.report(self._settings.node))) for run in runs)
        begin = 0
        for batch in in_batches(items):
            self._outcome(record, batch, partial(then, runs[begin : begin + len(batch)]))
            begin += len(batch)
        reach("work.starting")

    def ended(self, run: Run, result: Result) -> None:
        """Say how a run ended. It is finished once that is acknowledged."""
        report = run.report(
            self._settings.node,
            finished_at=self._clock.wall_us(),
            error=clean(result.error, ERROR_BYTES),
            output=clean(result.output, self._settings.output_bytes),
            work=None if result.kind == Kind.SUCCEEDED else run.body,
            final=result.final,
            retry_after_us=result.retry_after_us,
        )
        self._ends.setdefault(run.record, []).append(run.item(result.kind, bodies.pack(report)))
        self._collected += 1
        if self._collected >= MAX_ITEMS:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(COLLECT_SECONDS, self.flush)

    def flush(self) -> None:
        """Send the ends collected so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ends, self._ends, self._collected = self._ends, {}, 0
        for record, items in ends.items():
            if record.tenure.over:
                continue
            for batch in in_batches(items):
                self._outcome(record, batch, partial(self._on_finished, record, len(batch)))
                reach("work.ending")

    async def settled(self, partition: int) -> None:
        """Wait until everything said of a partition is acknowledged."""
        self.flush()
        while self._unacknowledged[partition]:
            self._changed.clear()
            await self._changed.wait()

    def dead_letter(self, message: Message, reason: str, then: Callable[[], None]) -> None:
        """Set a record aside as it is, with where it came from and why."""
        partition = message.partition()
        assert partition is not None
        record = dead_letters.Record(
            str(message.topic()),
            partition,
            message.offset() or 0,
            message.key(),
            message.value(),
            [(name, _bytes(value)) for name, value in cast(_Headers, message.headers() or [])],
        )
        letter = dead_letters.letter_of(record, dead_letters.POISON_RECORD, reason, "workers")
        self._produce(
            self._settings.topics.dead_letter,
            partition,
            letter.value,
            letter.key,
            _Headers(letter.headers),
            partition,
            lambda _: then(),
        )

    async def close(self) -> None:
        """Send what is left and stop the thread."""
        self.flush()
        while self._unacknowledged.total():
            self._changed.clear()
            await self._changed.wait()
        self._closing = True
        await asyncio.to_thread(self._thread.join)

    def _outcome(self, record: Record, items: Sequence[Item], then: Callable[[], None]) -> None:
        batch = Batch.of(items, token=record.token, published_at=self._clock.wall_us(), source=record.next_source())

        def acknowledged(offset: int) -> None:
            self._on_outcome(record.partition, offset)
            then()

        self._produce(self._outcomes, record.partition, batch.encode(), None, None, record.partition, acknowledged)

    def _produce(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        key: bytes | None,
        headers: _Headers | None,
        speaks_of: int,
        then: Callable[[int], None],
    ) -> None:
        self._unacknowledged[speaks_of] += 1

        def delivered(error: KafkaError | None, message: Message) -> None:
            # librdkafka's callback, in the serving thread.
            self._loop.call_soon_threadsafe(self._delivered, topic, error, message.offset(), speaks_of, then)

        def send() -> None:
            try:
                self._producer.produce(topic, value, key, partition=partition, headers=headers, on_delivery=delivered)
            except BufferError:
                self._loop.call_later(QUEUE_FULL_SECONDS, send)
            except KafkaException as error:
                self._on_failure(DeliveryFailed(f"{topic}: {error}"))

        send()

    def _delivered(
        self, topic: str, error: KafkaError | None, offset: int | None, speaks_of: int, then: Callable[[int], None]
    ) -> None:
        if error is not None or offset is None:
            self._on_failure(DeliveryFailed(f"{topic}: {error}"))
            return
        self._unacknowledged[speaks_of] -= 1
        self._changed.set()
        try:
            then(offset)
        except Exception as problem:
            self._on_failure(problem)

    def _serve(self) -> None:
        try:
            while not self._closing:
                self._producer.poll(0.1)
        except BaseException as problem:
            self._loop.call_soon_threadsafe(self._on_failure, problem)


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
