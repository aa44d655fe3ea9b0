"""The tail of the triggers topic at takeover: what was published and perhaps not advanced.

Read from the stored offsets to the end, committed records only. A job fires in
the order of its times, so its newest published time says it all: the row moves
past it. What was published is known, not guessed, before any misfire is judged.
Of requests each run is known by itself: it is not published again.

The rows are moved by the writer, first of all it does. Nobody waits for that but what may stand in the tail:
jobs whose row says a time up to the newest one published (``reaches_us``). All others are loaded meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from coordinator.epoch import NotFit
from coordinator.requests import Tried
from coordinator.trust import Term, TermOver
from coordinator.writer import MOST_ROWS, TailRows
from cronstream import pulse
from cronstream.records import Batch, Kind, PoisonRecord, are_runs
from cronstream.settings import CoordinatorSettings

log = logging.getLogger(__name__)

_NO_LEADER = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
_ANSWER_SECONDS = 10.0
_AGAIN_SECONDS = 0.1
_WAIT_SECONDS = 0.02
_SILENT_SECONDS = 20.0
"""Neither a record nor an end for so long: another leader shall try."""


@dataclass(slots=True)
class Tail:
    """What stands on the log and perhaps in no row."""

    newest: dict[int, int] = field(default_factory=dict)
    """The newest scheduled time of each job's own runs and skips."""
    requested: set[Tried] = field(default_factory=set)
    """Attempts of requests, redrives included."""

    @property
    def reaches_us(self) -> int | None:
        """The newest scheduled time in it."""
        return max(self.newest.values(), default=None)

    def rows(self) -> Iterator[TailRows]:
        """What is to be written of it."""
        jobs = sorted(self.newest)
        for start in range(0, len(jobs), MOST_ROWS):
            chunk = jobs[start : start + MOST_ROWS]
            yield TailRows(chunk, [self.newest[job_id] for job_id in chunk])

    def add(self, batch: Batch) -> None:
        """Take a record in."""
        own = (batch.request_id == 0) & (batch.attempt == 1)
        settled = own & (are_runs(batch.kind) | (batch.kind == Kind.SKIP))
        for job_id, scheduled_us in zip(batch.job_id[settled].tolist(), batch.scheduled[settled].tolist(), strict=True):
            if scheduled_us > self.newest.get(job_id, scheduled_us - 1):
                self.newest[job_id] = scheduled_us
        asked = are_runs(batch.kind) & ~own
        columns = (batch.job_id, batch.scheduled, batch.request_id, batch.attempt)
        self.requested.update(zip(*(column[asked].tolist() for column in columns), strict=True))


def read_tail(settings: CoordinatorSettings, term: Term, stored: Mapping[int, int]) -> Tail:
    """Read to the end of every partition.

    Raises TermOver when the topic cannot be read.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": settings.kafka,
            "group.id": f"{settings.installation}-coordinator-tail",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 20,
            "logger": logging.getLogger("coordinator.librdkafka"),
        }
    )
    topic = settings.topics.triggers
    tail = Tail()
    try:
        # Connected first: assigned too early, it waits half a second.
        found = len(consumer.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic].partitions)
        if found != settings.partitions:
            raise NotFit(f"{topic} has {found} partitions and CRONSTREAM_PARTITIONS is {settings.partitions}")
        begins = [TopicPartition(topic, partition, stored.get(partition, 0)) for partition in range(found)]
        open_still = {begin.partition for begin in begins if _has_more(consumer, begin, term)}
        consumer.assign([begin for begin in begins if begin.partition in open_still])
        silent = 0.0
        while open_still:
            pulse.beat()
            term.check()
            # A longer wait is waited out whenever fewer than so many records are there.
            messages = consumer.consume(500, timeout=_WAIT_SECONDS)
            silent = 0.0 if messages else silent + _WAIT_SECONDS
            if silent > _SILENT_SECONDS:
                raise TermOver(f"the tail of {topic} cannot be read: partitions {sorted(open_still)} do not end")
            for message in messages:
                partition, error = message.partition(), message.error()
                assert partition is not None
                if error is None:
                    _add(tail, message.value(), partition, message.offset())
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_still.discard(partition)
                else:
                    raise TermOver(f"the tail of {topic} cannot be read: {error.str()}")
    except KafkaException as error:
        raise TermOver(f"the tail of {topic} cannot be read: {error.args[0].str()}") from None
    finally:
        consumer.close()
    return tail


def _has_more(consumer: Consumer, begin: TopicPartition, term: Term) -> bool:
    """Whether anything can be read from there on.

    The end may lie before the beginning: a broker that was restarted can hold back the last committed transaction until
    something is written behind it. Whoever waited there for the end would wait for ever, as a leader that is not in
    office writes nothing.
    """
    end = _readable_end(consumer, begin, term)
    if end < begin.offset:
        log.warning(
            "%s[%d] was written up to offset %d and can be read up to %d: the broker has a transaction open",
            begin.topic,
            begin.partition,
            begin.offset,
            end,
            extra={"action": "tail"},
        )
    return end > begin.offset


def _readable_end(consumer: Consumer, place: TopicPartition, term: Term) -> int:
    """Asked again while nobody leads the partition: its broker is coming up, or the topic was just made."""
    while True:
        pulse.beat()
        term.check()
        try:
            return consumer.get_watermark_offsets(place, timeout=_ANSWER_SECONDS)[1]
        except KafkaException as error:
            if error.args[0].code() not in _NO_LEADER:
                raise
        consumer.poll(_AGAIN_SECONDS)  # nothing is assigned yet: it only waits


def _add(tail: Tail, value: bytes | None, partition: int, offset: int | None) -> None:
    try:
        tail.add(Batch.decode(value))
    except PoisonRecord as error:
        # Not ours: the leader alone writes here. Admission sets it aside.
        log.error("A record on triggers is no batch: %s", error, extra={"partition": partition, "offset": offset})
