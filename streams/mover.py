"""``python -m streams.mover``: retries, tier by tier, to ``retry.due``.

    retry.1024 … retry.1 ──► heads ── due ──► next tier | retry.due     } one Kafka transaction:
                                              offsets of what was taken }  both or neither

A record is handed on exactly once: output and offsets are in one transaction, which the broker refuses from a
mover that lost its partitions (group metadata) or was followed by another of its name (``transactional.id``).
Several movers share the partitions. Between due instants a mover waits in the consumer's poll; a partition of
which it holds something is paused. A transaction that must be aborted, as while partitions move, is
tried again; whatever else goes wrong with the broker ends the session: clients are closed, and new ones go
on from the committed offsets.

A call of the client may never return after a broker's crash (``bounded``). Such a producer is left behind:
its transaction was not committed, or was with its offsets, and the next one's ``init_transactions`` ends it and
has the broker refuse whatever it still sends. Only a consumer that does not close ends the process.

Fault points: ``mover.begin``, ``.produced``, ``.offsets`` (sent to the transaction), ``.committed``.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from cronstream import garbage, logs, pulse
from cronstream.clock import SECOND, Clock, SystemClock
from cronstream.fault_points import reach
from cronstream.settings import ConsumerSettings, SettingsError, read_settings
from cronstream.topics import RETRY_TIERS
from streams.bounded import BoundedCalls
from streams.consuming import COOPERATIVE, consumer_of, record_of
from streams.moves import Heads, Move, Out, Place
from streams.pauses import Pauses, places_of
from streams.topics import TopicsError, require

log = logging.getLogger("streams.mover")  # not __main__

TAKEN_AT_ONCE = 100
LONGEST_WAIT_SECONDS = 0.5
"""How long SIGTERM may go unnoticed."""
AGAIN_SECONDS = 1.0
TRANSACTION_SECONDS = 10.0
"""A mover that died in a transaction holds up the readers of its output for so long, or until it is back."""
CALL_SECONDS = 12.0
"""A transaction's call that has not returned by then does not know its own timeout any more."""
CLOSE_SECONDS = 15.0
STANDSTILL_SECONDS = 60
"""Longer than anything between two beats, timeouts included."""
ABORTED_WAIT_SECONDS = 0.1
FULL_WAIT_SECONDS = 0.1


class Mover:
    """Sessions, one after the other, until ``stop``."""

    def __init__(self, settings: ConsumerSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._stop = threading.Event()

    def stop(self, *_: Any) -> None:
        """End after the transaction under way."""
        self._stop.set()

    def run(self) -> None:
        """Hand retries on until told to stop."""
        log.info("Retries are handed on", extra={"action": "start", "node": self._settings.node})
        pulse.watch("the mover", STANDSTILL_SECONDS)
        while not self._stop.is_set():
            pulse.beat()
            try:
                self._one_session()
            except KafkaException:
                self._stop.wait(AGAIN_SECONDS)
        pulse.rest()
        log.info("The mover has stopped", extra={"action": "stop"})

    def _one_session(self) -> None:
        session = Session(self._settings, self._clock)
        try:
            session.run(self._stop)
        except KafkaException as error:
            log.warning("The broker ended the session, a new one begins: %s", error, extra={"action": "again"})
            raise
        finally:
            session.close()


class Session:
    """A consumer, a transactional producer, and what they hold. Raises KafkaException when it must end."""

    def __init__(self, settings: ConsumerSettings, clock: Clock) -> None:
        self._clock = clock
        self._heads = Heads(settings.topics)
        self._ours: set[Place] = set()
        self._aborted = False
        self._topics = [settings.topics.retry(tier) for tier in RETRY_TIERS]
        self._producer = Producer(
            {
                "bootstrap.servers": settings.kafka,
                "client.id": settings.node,
                "transactional.id": f"{settings.installation}-mover-{settings.node}",
                "transaction.timeout.ms": round(TRANSACTION_SECONDS * 1000),
                "logger": log.getChild("librdkafka"),
            }
        )
        self._calls = BoundedCalls("transactions", CALL_SECONDS)
        self._consumer = consumer_of(settings, "mover", log, COOPERATIVE)
        self._pauses = Pauses(self._consumer)

    def run(self, stop: threading.Event) -> None:
        """Take, wait, hand on."""
        self._bounded("init_transactions", lambda: self._producer.init_transactions(TRANSACTION_SECONDS))
        self._consumer.subscribe(self._topics, on_assign=self._came, on_revoke=self._left, on_lost=self._left)
        while not stop.is_set():
            pulse.beat()
            self._take(self._wait_seconds())
            move = self._heads.move(self._clock.wall_us())
            if move.offsets and self._handed_on(move):
                self._heads.moved(move.offsets)
            self._pauses.only(self._heads.places)  # no more of a partition whose head is not due

    def close(self) -> None:
        """Leave the group; an open transaction is aborted by the broker or by the next session's beginning.

        The producer goes in its own time, which with the broker away may be long.
        A consumer that is just joining anew may never come back from ``close``, and keeps its partitions all the
        while: then only the end of the process takes it out of the group.
        """
        self._calls.end(self._drop_producer)
        pulse.beat()
        closing = threading.Thread(target=self._consumer.close, name="close", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)
        if closing.is_alive():
            log.critical(
                "The consumer does not close: this process ends, to be started anew", extra={"action": "standstill"}
            )
            pulse.end_process()

    def _drop_producer(self) -> None:
        del self._producer  # the last that holds it, unless a call never returns

    def _bounded(self, what: str, call: Callable[[], None]) -> None:
        pulse.beat()
        self._calls.call(what, call)

    def _wait_seconds(self) -> float:
        if self._aborted:
            return ABORTED_WAIT_SECONDS
        due = self._heads.next_due_us()
        if due is None:
            return LONGEST_WAIT_SECONDS
        return min(max((due - self._clock.wall_us()) / SECOND, 0.0), LONGEST_WAIT_SECONDS)

    def _take(self, seconds: float) -> None:
        """Take what has come; if nothing has, wait for it that long at most."""
        first = self._consumer.poll(seconds)
        messages = [first, *self._consumer.consume(TAKEN_AT_ONCE, 0)] if first is not None else []
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
            # What was fetched before its partition left may be handed out after it: that is another mover's to take.
            if (message.topic(), message.partition()) in self._ours:
                self._heads.take(record_of(message))

    def _handed_on(self, move: Move) -> bool:
        """One transaction; False if it had to be aborted."""
        reach("mover.begin")
        self._aborted = False
        self._producer.begin_transaction()
        try:
            self._fill(move)
            self._bounded("commit_transaction", lambda: self._producer.commit_transaction(TRANSACTION_SECONDS))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            log.warning("A transaction is aborted, trying again: %s", error, extra={"action": "abort"})
            self._bounded("abort_transaction", lambda: self._producer.abort_transaction(TRANSACTION_SECONDS))
            self._aborted = True
            return False
        reach("mover.committed")
        log.debug("Handed on %d retries", move.retries, extra={"action": "move", "records": len(move.out)})
        return True

    def _fill(self, move: Move) -> None:
        for out in move.out:
            self._produce(out)
        reach("mover.produced")
        offsets = [TopicPartition(*place, offset) for place, offset in move.offsets.items()]
        group = self._consumer.consumer_group_metadata()
        self._bounded(
            "send_offsets_to_transaction",
            lambda: self._producer.send_offsets_to_transaction(offsets, group, TRANSACTION_SECONDS),
        )
        reach("mover.offsets")

    def _produce(self, out: Out) -> None:
        key, value, headers = out.letter
        while True:
            try:
                self._producer.produce(out.topic, value, key, partition=out.partition, headers=[*headers])
            except BufferError:
                self._producer.poll(FULL_WAIT_SECONDS)
            else:
                return

    def _came(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._ours |= places_of(partitions)
        log.info("Partitions came", extra={"action": "assigned", "partitions": len(partitions)})

    def _left(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        gone = places_of(partitions)
        self._ours -= gone
        self._heads.forget(gone)
        self._pauses.only(self._heads.places)


def main() -> None:
    """Settings → mover; SIGTERM ends it after the transaction under way."""
    try:
        settings = read_settings(ConsumerSettings, os.environ)
        logs.set_up(settings.log_level)
        garbage.look_rarely()
        require(settings)
    except (SettingsError, TopicsError) as error:
        sys.exit(f"streams.mover: {error}")
    mover = Mover(settings, SystemClock())
    signal.signal(signal.SIGTERM, mover.stop)
    signal.signal(signal.SIGINT, mover.stop)
    mover.run()


if __name__ == "__main__":
    main()
