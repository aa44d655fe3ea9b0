"""Reads what the topics say while the run goes on, into the history."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from cronstream.bodies import PoisonItem, report_of, skip_of
from cronstream.clock import SystemClock
from cronstream.records import RUN_KINDS, Batch, Item, Kind, PoisonRecord
from cronstream.topics import RETRY_TIERS, Topics, partition_of
from tests.faults.events import Attempt, DeadLetter, Event, Outcome, Retry, Run, Skip, Trigger
from tests.faults.history import Recorder

STAGES = ("triggers", "attempts", "outcomes")
_HOW = {
    Kind.STARTED: "started",
    Kind.SUCCEEDED: "succeeded",
    Kind.FAILED: "failed",
    Kind.TIMED_OUT: "timed_out",
    Kind.LOST: "lost",
    Kind.CANCELLED: "cancelled",
}


class Collector:
    """One consumer of the work topics, committed records only; ``run`` in a thread until ``stop``."""

    def __init__(self, bootstrap: str, topics: Topics, partitions: int, recorder: Recorder) -> None:
        self._recorder = recorder
        self._clock = SystemClock()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "fault-run",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._prefix = f"{topics.installation}."
        retries = (topics.retry_due, *map(topics.retry, RETRY_TIERS))
        names = (topics.triggers, topics.attempts, topics.outcomes, topics.dead_letter, *retries)
        self._consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for topic in names for number in range(partitions)]
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)
        self.newest_token = 0
        self.newest_us: dict[str, list[int]] = {name: [0] * partitions for name in STAGES}
        """By stage and partition, the newest scheduled time of a run that went through it."""
        self.heard_ns = self._clock.boot_ns()
        """Boot time of the last record."""
        # Topics are read in no order among themselves: an end may be seen before its attempt.
        self._admitted: set[tuple[Run, int]] = set()
        self._ended: set[tuple[Run, int]] = set()
        self._retried: set[tuple[Run, int]] = set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(20)
        self._consumer.close()

    def _through(self, stage: str, partition: int, scheduled_us: int) -> None:
        newest = self.newest_us[stage]
        newest[partition] = max(newest[partition], scheduled_us)

    @property
    def open(self) -> int:
        """Attempts, admitted or waiting to be tried again, that have no end yet."""
        return len((self._admitted | self._retried) - self._ended)

    @property
    def quiet_seconds(self) -> float:
        """Since the last record."""
        return (self._clock.boot_ns() - self.heard_ns) / 1e9

    def _run(self) -> None:
        while not self._over.is_set():
            events: list[Event] = []
            for message in self._consumer.consume(500, timeout=0.2):
                if message.error() is None:
                    self.heard_ns = self._clock.boot_ns()
                    events += self._events(message)
            if events:
                self._note(events)
                self._recorder.record(*events)

    def _events(self, message: Message) -> Iterator[Event]:
        try:
            batch = Batch.decode(message.value())
        except PoisonRecord:
            return
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        headers: list[tuple[str, bytes]] = list(message.headers() or [])  # type: ignore[arg-type]
        reason = dict(headers).get("cronstream-reason", b"").decode()
        name = topic.removeprefix(self._prefix)
        yield from events_of(name, partition, offset, message.timestamp()[1], batch, reason)

    def _note(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Trigger):
                self._through("triggers", event.partition, event.scheduled_us)
                self.newest_token = max(self.newest_token, event.token)
            elif isinstance(event, Attempt):
                self._through("attempts", event.partition, event.scheduled_us)
                self._admitted.add((event.run, event.attempt))
            elif isinstance(event, Retry):
                self._retried.add((event.run, event.attempt))
            elif isinstance(event, Outcome) and event.how != "started":
                self._through(
                    "outcomes", partition_of(event.job_id, len(self.newest_us["outcomes"])), event.scheduled_us
                )
                self._ended.add((event.run, event.attempt))


def events_of(
    topic: str, partition: int, offset: int, timestamp_ms: int, batch: Batch, reason: str = ""
) -> Iterator[Event]:
    """What a record says; ``topic`` without the installation's name, ``reason`` of a dead letter."""
    for item in _items(batch):
        if topic == "triggers" and item.kind in RUN_KINDS.values():
            yield Trigger(partition, offset, batch.token, batch.published_at, *item.run)
        elif topic == "attempts":
            source = batch.source
            assert source is not None
            place = (source.topic.partition(".")[2], source.partition, source.offset, source.part)
            yield Attempt(*item.run, partition, offset, place, batch.token, item.attempt, timestamp_ms * 1000)
        elif topic.startswith("retry."):
            yield Retry(*item.run, topic, partition, offset, item.attempt, item.not_before)
        elif topic == "outcomes" and item.kind is Kind.SKIPPED:
            skip = skip_of(item.body)
            span = (item.job_id, skip.first, skip.last, skip.count, skip.reason)
            yield Skip(*span, batch.published_at, item.request_id)
        elif topic == "outcomes" and item.kind in _HOW:
            report = report_of(item.body)
            times = (report.started_at, report.finished_at)
            yield Outcome(*item.run, _HOW[item.kind], item.attempt, report.worker, *times)
        elif topic == "dead-letter":
            yield DeadLetter(*item.run, reason, item.attempt, batch.token)


def _items(batch: Batch) -> Iterator[Item]:
    for index in range(len(batch)):
        try:
            yield batch.item(index)
        except PoisonItem:
            continue
