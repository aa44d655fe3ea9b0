"""Reads what the topics say while the run goes on, into the history."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

from cronstream.bodies import PoisonItem, report_of, skip_of
from cronstream.clock import SystemClock
from cronstream.records import Batch, Item, Kind, PoisonRecord, are_runs
from cronstream.topics import Topics
from tests.faults.history import Attempt, DeadLetter, Event, Outcome, Recorder, Run, Skip, Trigger

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
        self._topics = topics
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
        self._readers: dict[str, Callable[[Message, Batch], Iterable[Event]]] = {
            topics.triggers: _triggers,
            topics.attempts: self._attempts,
            topics.outcomes: self._outcomes,
            topics.dead_letter: _dead_letters,
        }
        self._consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for topic in self._readers for number in range(partitions)]
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)
        self.newest_trigger_us = 0
        """The newest scheduled time that was published."""
        self.newest_token = 0
        self.newest_attempt_us = 0
        self.newest_outcome_us = 0
        self.heard_ns = self._clock.boot_ns()
        """Boot time of the last record."""
        # Topics are read in no order among themselves: an end may be seen before its attempt.
        self._admitted: set[tuple[Run, int]] = set()
        self._ended: set[tuple[Run, int]] = set()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(20)
        self._consumer.close()

    @property
    def open(self) -> int:
        """Admitted attempts that have no end yet."""
        return len(self._admitted - self._ended)

    @property
    def quiet_seconds(self) -> float:
        """Since the last record."""
        return (self._clock.boot_ns() - self.heard_ns) / 1e9

    def _run(self) -> None:
        while not self._over.is_set():
            events: list[Event] = []
            for message in self._consumer.consume(500, timeout=0.2):
                if message.error() is not None:
                    continue
                self.heard_ns = self._clock.boot_ns()
                try:
                    batch = Batch.decode(message.value())
                except PoisonRecord:
                    continue
                events += self._readers[message.topic() or ""](message, batch)
            if events:
                self._note(events)
                self._recorder.record(*events)

    def _note(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Trigger):
                self.newest_trigger_us = max(self.newest_trigger_us, event.scheduled_us)
                self.newest_token = max(self.newest_token, event.token)
            elif isinstance(event, Attempt):
                self.newest_attempt_us = max(self.newest_attempt_us, event.scheduled_us)
                self._admitted.add((event.run, event.attempt))
            elif isinstance(event, Outcome) and event.how != "started":
                self.newest_outcome_us = max(self.newest_outcome_us, event.scheduled_us)
                self._ended.add((event.run, event.attempt))

    def _attempts(self, message: Message, batch: Batch) -> Iterator[Event]:
        source = batch.source
        assert source is not None
        topic = source.topic.removeprefix(f"{self._topics.installation}.")
        for item in _items(batch):
            yield Attempt(
                *_place(message),
                (topic, source.partition, source.offset, source.part),
                batch.token,
                *item.run,
                item.attempt,
                message.timestamp()[1] * 1000,
            )

    def _outcomes(self, message: Message, batch: Batch) -> Iterator[Event]:
        for item in _items(batch):
            if item.kind is Kind.SKIPPED:
                skip = skip_of(item.body)
                yield Skip(
                    item.job_id, skip.first, skip.last, skip.count, skip.reason, batch.published_at, item.request_id
                )
            elif item.kind in _HOW:
                report = report_of(item.body)
                yield Outcome(
                    _HOW[item.kind],
                    *item.run,
                    item.attempt,
                    report.worker,
                    report.started_at,
                    report.finished_at,
                )


def _triggers(message: Message, batch: Batch) -> Iterator[Event]:
    runs = are_runs(batch.kind)
    for index, item in enumerate(batch.items()):
        if runs[index]:
            yield Trigger(*_place(message), batch.token, batch.published_at, *item.run)


def _dead_letters(message: Message, batch: Batch) -> Iterator[Event]:
    headers: list[tuple[str, bytes]] = list(message.headers() or [])  # type: ignore[arg-type]
    reason = dict(headers).get("cronstream-reason", b"").decode()
    for item in _items(batch):
        yield DeadLetter(reason, *item.run, item.attempt, batch.token)


def _place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def _items(batch: Batch) -> Iterator[Item]:
    for index in range(len(batch)):
        try:
            yield batch.item(index)
        except PoisonItem:
            continue
