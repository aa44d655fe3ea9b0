"""The triggers topic, written in transactions that the broker fences.

Every leader produces under the same ``transactional.id``, so a newer leader's
``init`` makes the broker refuse this one from then on. What can happen to a
transaction, and what follows:

    committed           the offsets are known; the caller goes on
    aborted by us       published again, before anything newer
    fenced, fatal       the term is over
    commit timed out    the term is over: it may have landed or not, and only a
                        successor, who reads the topic, can tell
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from aiokafka.errors import KafkaError as NotFenced
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from coordinator.kafka_fence import fence_kafka
from coordinator.trust import Term, TermOver
from cronstream import pulse
from cronstream.clock import Clock
from cronstream.fault_points import reach
from cronstream.records import Batch
from cronstream.settings import CoordinatorSettings

log = logging.getLogger(__name__)

_INIT_TIMEOUT = 10.0
_COMMIT_TIMEOUT = 8.0


class Publisher:
    """One term's transactional producer. Used by one thread."""

    def __init__(self, settings: CoordinatorSettings, term: Term, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._topic = settings.topics.triggers
        self._transactional_id = f"{settings.installation}-coordinator"
        self._check = term.check
        self._offsets: dict[int, int] = {}
        self._failed: KafkaError | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": settings.kafka,
                "client.id": f"{settings.node}-triggers",
                "transactional.id": self._transactional_id,
                "transaction.timeout.ms": settings.transaction_timeout_ms,
                "message.timeout.ms": settings.transaction_timeout_ms,
                "linger.ms": 0,
                "retry.backoff.ms": 20,
                "compression.type": "none",  # aiokafka reads lz4 only with cramjam, which is not installed
                "queue.buffering.max.messages": 1_000_000,
                "message.max.bytes": 2_000_000,
                "logger": logging.getLogger("coordinator.librdkafka"),
            }
        )

    def fence(self) -> None:
        """Make the broker refuse every older leader. Raises TermOver."""
        self._check()
        try:
            fence_kafka(
                self._settings.kafka,
                self._transactional_id,
                self._clock,
                timeout_ms=self._settings.transaction_timeout_ms,
                seconds=_INIT_TIMEOUT,
            )
            pulse.beat()
            # Connected first: a coordinator that is asked for too early is asked again half a second later.
            self._producer.list_topics(self._topic, timeout=_INIT_TIMEOUT)
            self._producer.init_transactions(_INIT_TIMEOUT)
        except KafkaException as error:
            raise TermOver(f"init_transactions: {error.args[0].str()}") from None
        except (NotFenced, TimeoutError) as error:
            raise TermOver(f"fencing Kafka: {error!r}") from None
        # An ex-leader that was paused in here would fence its successor: trust is asked again.
        self._check()

    def close(self) -> None:
        """Let go of the producer and its threads; what it still holds is dropped.

        In a thread of its own: with the broker away it can take a while, and the hand-over waits for nobody.
        """
        self._producer.purge()
        threading.Thread(target=self._close, name="publisher-close", daemon=True).start()

    def _close(self) -> None:
        try:
            self._producer.close()
        except KafkaException as error:
            log.info("The term's producer is dropped: %s", error.args[0].str(), extra={"action": "drop"})

    def publish(self, batches: Sequence[tuple[int, Batch]]) -> dict[int, int]:
        """Publish (partition, batch) pairs in one transaction, again until it commits.

        Returns the next offset of each partition written to. Raises TermOver.
        """
        values = [(partition, batch.encode()) for partition, batch in batches]
        while True:
            pulse.beat()
            self._check()
            try:
                return self._transaction(values)
            except KafkaException as error:
                self._abort_or_end(error.args[0])

    def _transaction(self, values: Sequence[tuple[int, bytes]]) -> dict[int, int]:
        self._offsets = {}
        self._failed = None
        producer = self._producer
        reach("publish.before")
        producer.begin_transaction()
        for partition, value in values:
            while True:
                try:
                    producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
                    break
                except BufferError:
                    producer.poll(0.01)
                    self._check()
        self._check()
        reach("publish.produced")
        try:
            producer.commit_transaction(_COMMIT_TIMEOUT)
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() == KafkaError._TIMED_OUT or (reason.retriable() and not reason.txn_requires_abort()):
                raise TermOver(f"a commit's outcome is unknown: {reason.str()}") from None
            raise
        reach("publish.committed")
        if self._failed is not None:
            raise TermOver(f"committed, yet a batch was not delivered: {self._failed.str()}")
        return dict(self._offsets)

    def _abort_or_end(self, reason: KafkaError) -> None:
        if reason.fatal() or reason.code() in _FENCED:
            raise TermOver(f"fenced by the broker: {reason.str()}")
        if not reason.txn_requires_abort():
            raise TermOver(f"the transaction failed: {reason.str()}")
        log.warning("A transaction is aborted and published again: %s", reason.str())
        try:
            self._producer.abort_transaction(_COMMIT_TIMEOUT)
        except KafkaException as error:
            raise TermOver(f"abort: {error.args[0].str()}") from None

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed = error
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self._offsets[partition] = max(self._offsets.get(partition, 0), offset + 1)


_FENCED = (
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED if hasattr(KafkaError, "PRODUCER_FENCED") else KafkaError._FENCED,
)
