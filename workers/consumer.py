"""The poll thread: assignment, backpressure and commits. It decides nothing of runs.

It only hands over, so a long job never keeps it from polling. When enough is
waiting it pauses its partitions, and resumes them when half of that is done.

    assigned    read committed offsets, pause, read the done-log in a thread; then adopt and resume
    revoked     the loop drains the partition; commit; give it back
    lost        the loop kills what runs; nothing is committed
    stopped     drain everything, commit, leave the group
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cronstream import pulse
from cronstream.clock import Clock
from cronstream.fault_points import reach
from cronstream.records import Batch, PoisonRecord
from cronstream.settings import PREFIX, WorkerSettings
from workers.progress import Position, encode_metadata
from workers.service import Service
from workers.takeover import LIBRDKAFKA, Start, Takeover, TakeoverReader, start_of
from workers.trust import Trust

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.1
COMMIT_SECONDS = 0.5
QUERY_SECONDS = 30.0
GRACE_SECONDS = 30.0
"""Beyond drain_seconds: for cutting off and for acknowledgements."""
BACKLOG_SLOTS = 20
"""Items taken and not ended, as a multiple of the slots, before partitions are paused."""
BACKLOG_ITEMS = 20_000
"""At least. What one tenant has waiting must not keep the next one's from being read."""
BACKLOG_BYTES = 64 * 1024 * 1024

_PASSING = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT})
_NO_LEADER = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
NO_LEADER_SECONDS = 0.1

T = TypeVar("T")


def consumer_config(settings: WorkerSettings) -> dict[str, object]:
    """Only what moves is revoked (cooperative); heartbeats go on while a callback drains.

    Membership is static: a node that is back within its session gets its partitions again,
    and nothing moves.
    """
    return {
        "bootstrap.servers": settings.kafka,
        "group.id": f"{settings.installation}-workers",
        "client.id": settings.node,
        "group.instance.id": settings.node,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": int(settings.session_timeout_seconds * 1000),
        "heartbeat.interval.ms": max(100, int(settings.session_timeout_seconds * 1000 / 5)),
        # Also how long the group waits for a member that drains.
        "max.poll.interval.ms": int(max(300.0, settings.drain_seconds + 2 * GRACE_SECONDS) * 1000),
        "queued.max.messages.kbytes": 16 * 1024,
        "fetch.wait.max.ms": 100,
        "logger": LIBRDKAFKA,
    }


class CannotWork(RuntimeError):
    """What an operator has to mend; the message says what and how."""


class NodeTaken(CannotWork):
    """Two processes of one name: the broker lets the younger one be."""


class NoTopic(CannotWork):
    """The installation has no attempts."""


class PollThread:
    """Owns the consumer. ``stop`` may be called from anywhere; ``join`` waits for the end."""

    def __init__(
        self,
        settings: WorkerSettings,
        clock: Clock,
        trust: Trust,
        service: Service,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._trust = trust
        self._service = service
        self._loop = loop
        self._on_end = on_end
        self._topic = settings.topics.attempts
        self._stop = threading.Event()
        self._reader = TakeoverReader(settings)
        self._pool = concurrent.futures.ThreadPoolExecutor(4, "takeover")
        self._reading: dict[int, concurrent.futures.Future[Takeover]] = {}
        self._open: set[int] = set()
        """Partitions whose takeover is done."""
        self._paused = False
        self._handed = 0
        self._bytes_per_item = 0.0
        self._committed: dict[int, Position] = {}
        self._committed_ns = clock.boot_ns()
        self._backlog = max(BACKLOG_ITEMS, settings.slots * BACKLOG_SLOTS)
        self._thread = threading.Thread(target=self._main, name="poll", daemon=True)

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    def stop(self) -> None:
        """Take nothing more, drain, commit, leave the group. ``on_end`` is called at the end of it."""
        self._stop.set()

    def _main(self) -> None:
        problem: BaseException | None = RuntimeError("the poll thread ended; its last words are above")
        try:
            self._consumer = Consumer(
                {
                    **consumer_config(self._settings),
                    "error_cb": self._client_error,
                    "on_commit": self._commit_done,
                }
            )
            self._consumer.subscribe(
                [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
            pulse.watch("the poll thread")
            while not self._stop.is_set():
                self._round()
            self._leave()
            problem = None
        except BaseException as error:
            problem = _explained(error, self._settings.node)
        finally:
            # What the client library says inside a rebalance can come out of poll as something that is no
            # exception, which no except clause takes; a worker without this thread must not seem to live on.
            pulse.rest()
            self._loop.call_soon_threadsafe(self._on_end, problem)

    def _round(self) -> None:
        message = self._consumer.poll(POLL_SECONDS)
        self._alive()
        if message is not None:
            self._hand_over(message)
        if self._reading:
            self._finish_takeovers()
        self._balance()
        if self._clock.boot_ns() - self._committed_ns > COMMIT_SECONDS * 1e9:
            self._commit_progress()

    def _alive(self) -> None:
        pulse.beat()
        self._trust.alive(self._clock.boot_ns())

    def _hand_over(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise NoTopic(
                    f"there is no topic {self._topic}: {PREFIX}INSTALLATION is {self._settings.installation}; "
                    "set it to the one that is there, or run `cronstream setup`"
                )
            if error.code() not in _PASSING:
                raise KafkaException(error)
            return
        value = message.value()
        batch: Batch | PoisonRecord
        try:
            batch = Batch.decode(value)
            self._handed += len(batch)
            self._bytes_per_item += (len(value or b"") / max(1, len(batch)) - self._bytes_per_item) / 16
        except PoisonRecord as poison:
            batch = poison
            self._handed += 1
        self._loop.call_soon_threadsafe(self._take, message, batch)

    def _take(self, message: Message, batch: Batch | PoisonRecord) -> None:
        try:
            self._service.take(message, batch)
        except BaseException as error:
            self._on_end(error)

    def _balance(self) -> None:
        """Pause when enough is waiting, resume when half of it is done."""
        backlog = self._handed - self._service.ended
        full = backlog >= self._backlog or backlog * self._bytes_per_item >= BACKLOG_BYTES
        if full and not self._paused:
            self._paused = True
            self._consumer.pause(self._of(self._open))
        elif self._paused and backlog * 2 < self._backlog and backlog * self._bytes_per_item * 2 < BACKLOG_BYTES:
            self._paused = False
            self._consumer.resume(self._of(self._open))

    # Assignment. All callbacks run inside poll() or close(), in this thread.

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        committed = consumer.committed(
            [TopicPartition(part.topic, part.partition) for part in partitions], timeout=QUERY_SECONDS
        )
        starts = [self._start(consumer, part) for part in committed]
        logger.info(
            "Partitions are assigned",
            extra={"action": "assigned", "partitions": [start.partition for start in starts]},
        )
        consumer.incremental_assign([TopicPartition(self._topic, start.partition, start.offset) for start in starts])
        consumer.pause(self._of([start.partition for start in starts]))
        for start in starts:
            self._reading[start.partition] = self._pool.submit(self._reader.read, start)

    def _start(self, consumer: Consumer, committed: TopicPartition) -> Start:
        if committed.error is not None:
            raise KafkaException(committed.error)
        low, high = self._watermarks(consumer, TopicPartition(self._topic, committed.partition))
        return start_of(committed, low, high)

    def _watermarks(self, consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
        """Asked again while nobody leads the partition: the topic was just made, or its broker is coming up."""
        deadline = self._clock.boot_ns() + QUERY_SECONDS * 1e9
        while True:
            pulse.beat()
            try:
                return consumer.get_watermark_offsets(place, timeout=QUERY_SECONDS)
            except KafkaException as error:
                if error.args[0].code() not in _NO_LEADER or self._clock.boot_ns() > deadline:
                    raise
            self._clock.sleep(NO_LEADER_SECONDS)

    def _finish_takeovers(self) -> None:
        for number, reading in list(self._reading.items()):
            if not reading.done():
                continue
            del self._reading[number]
            takeover = reading.result()
            self._loop.call_soon_threadsafe(self._service.adopt, takeover)
            self._open.add(number)
            if not self._paused:
                self._consumer.resume(self._of([number]))
            logger.info(
                "A partition begins",
                extra={
                    "action": "taken_over",
                    "partition": number,
                    "offset": takeover.position.offset,
                    "outcomes_from": takeover.position.outcomes_from,
                    "started": len(takeover.log.started),
                    "ended": len(takeover.log.ended),
                },
            )

    def _revoked(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        numbers = [part.partition for part in partitions]
        logger.info("Partitions are revoked", extra={"action": "revoked", "partitions": numbers})
        self._hand_back(numbers)
        consumer.incremental_unassign(list(partitions))

    def _lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        numbers = [part.partition for part in partitions]
        logger.warning("Partitions are lost", extra={"action": "lost", "partitions": numbers})
        self._forget(numbers)
        self._ask(self._service.abandon(numbers), GRACE_SECONDS)
        consumer.incremental_unassign(list(partitions))

    def _hand_back(self, numbers: Sequence[int]) -> None:
        self._forget(numbers)
        seconds = self._settings.drain_seconds
        positions = self._ask(self._service.drain(numbers, seconds), seconds + GRACE_SECONDS)
        self._commit(positions, wait=True)

    def _forget(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._reading.pop(number, None)
            self._open.discard(number)
            self._committed.pop(number, None)

    def _leave(self) -> None:
        numbers = list(self._open | self._reading.keys())
        if numbers:
            self._consumer.pause(self._of(numbers))
        self._reader.stop()
        self._hand_back(numbers)
        self._consumer.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    # Commits.

    def _commit_progress(self) -> None:
        self._committed_ns = self._clock.boot_ns()
        self._commit(self._ask(self._positions(), QUERY_SECONDS), wait=False)

    async def _positions(self) -> dict[int, Position]:
        return self._service.positions()

    def _commit(self, positions: dict[int, Position], *, wait: bool) -> None:
        news = {number: position for number, position in positions.items() if self._committed.get(number) != position}
        if not news:
            return
        offsets = [
            TopicPartition(self._topic, number, position.offset, encode_metadata(position))
            for number, position in news.items()
        ]
        try:
            if wait:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            else:
                self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as error:
            # Not final: the next owner reads a longer done-log.
            logger.warning("Offsets are not committed: %s", error, extra={"action": "commit_failed"})
            return
        self._committed.update({number: news[number] for number in news if number in self._open})

    def _commit_done(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        reach("work.committed")
        for part in partitions:
            problem = error or part.error
            if problem is not None:
                self._committed.pop(part.partition, None)
                logger.warning(
                    "An offset is not committed: %s",
                    problem.str(),
                    extra={"action": "commit_failed", "partition": part.partition},
                )

    # Talking to the loop.

    def _ask(self, coroutine: Coroutine[Any, Any, T], seconds: float) -> T:
        """What the loop answers; signs of life go on meanwhile."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        until = self._clock.boot_ns() + int(seconds * 1e9)
        while True:
            try:
                return future.result(POLL_SECONDS)
            except concurrent.futures.TimeoutError:
                if future.done():
                    raise
            self._alive()
            if self._clock.boot_ns() > until:
                raise TimeoutError(f"the event loop did not answer within {seconds:g} s")

    def _of(self, numbers: Sequence[int] | set[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number) for number in numbers]

    def _client_error(self, error: KafkaError) -> None:
        logger.warning("Kafka says: %s", error.str(), extra={"action": "client_error", "code": error.name()})


def _explained(error: BaseException, node: str) -> BaseException:
    # The client says "fatal" and only in words what it was.
    if isinstance(error, KafkaException) and "group.instance.id" in error.args[0].str():
        return NodeTaken(f"another worker calls itself {node}: one CRONSTREAM_NODE a process")
    return error
