"""From a record to what must be done about it: decode, decide, list the effects. No I/O.

A stage holds the state of one partition, and decides about the records of a step in their order, each with the
decisions before it in view. ``decide`` never raises over what a record holds: what cannot be
read is an effect too, a dead letter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import numpy as np

from cronstream import dead_letters
from cronstream.clock import SECOND, Clock
from cronstream.dead_letters import Headers, Record
from cronstream.records import Batch, Item, Kind, PoisonRecord, Source, in_batches
from cronstream.topics import Topics
from streams import settlement, status, window
from streams.admission import admit, admit_retries
from streams.settlement import Following
from streams.status import JobStatus
from streams.tiers import Tier, in_tiers

Rows = Callable[[bytes], bytes | None]

_COUNTED_AS = {Kind.CANCEL: "jobs_deleted", **{kind: kind.name.lower() for kind in status.COUNTED}}
COUNTERS = (
    "admitted",
    "published_twice",
    "refused_old_leader",
    "records_repeated",
    "unreadable",
    "retries",
    "given_up",
    *_COUNTED_AS.values(),
)
"""What the effects count, since the process began; operations.md says what each means."""


@dataclass(frozen=True, slots=True)
class Send:
    """A record to produce, to the partition that the input came from."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(slots=True)
class Effects:
    """Everything that must be acknowledged before the next step."""

    sends: list[Send] = field(default_factory=list)
    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    """Rows of the stage's table to write, or with None to delete."""
    jobs: dict[int, JobStatus] = field(default_factory=dict)
    """What rows of jobs' status say, by job."""
    waiting: dict[bytes, bytes | None] = field(default_factory=dict)
    """The same of the table of waiting runs: they are written before ``rows``, which speak of them."""
    rows_first: bool = False
    """Nothing may be sent before the rows are written: the decision would not be the same again."""
    counts: Counter[str] = field(default_factory=Counter)
    running: int = 0
    """By how many the runs under way become more."""
    taken: int = 0
    """How many records these are the effects of."""


class Stage(Protocol):
    """What a lane does with the records of its partition."""

    name: str
    """For logs and fault points."""

    def decide(self, records: Sequence[Record]) -> Effects:
        """The effects of the partition's next records, decided in their order: of all, or of the first ``taken``.

        What is not stored may be decided anew, alike, from any of them on.
        """


class Admitting:
    """Triggers and due retries to attempts.

    A decision about a retry rests on what came before on triggers, and which of two topics comes first
    is not the same again after a crash; so its row is written before anything is sent.
    """

    name = "admit"

    def __init__(
        self,
        topics: Topics,
        window_seconds: float,
        rows: Iterable[bytes],
        deleted: Callable[[int], bool],
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._window = window.Window(round(window_seconds * SECOND), map(window.Row.decode, rows), self._now_us())
        self._deleted = deleted

    def decide(self, records: Sequence[Record]) -> Effects:
        effects = Effects(taken=len(records))
        for record in records:
            batch = _decode(record)
            if isinstance(batch, PoisonRecord):
                _set_aside(effects, self._topics, record, batch)
            else:
                self._admit(effects, record, batch)
        return effects

    def _admit(self, effects: Effects, record: Record, batch: Batch) -> None:
        at = Source(record.topic, record.partition, record.offset)
        is_retry = record.topic == self._topics.retry_due
        if is_retry:
            admission = admit_retries(self._window, batch, at, self._deleted)
        else:
            admission = admit(self._window, batch, at)
        # The row first: what leaves because of it must not be missing when the record is decided again.
        effects.rows[admission.row.key] = admission.row.encode()
        effects.rows.update(dict.fromkeys(self._window.add(admission.row, self._now_us())))
        effects.rows_first |= is_retry
        for topic, out in ((self._topics.attempts, admission.attempts), (self._topics.outcomes, admission.outcomes)):
            if out is not None:
                effects.sends.append(Send(topic, record.key, out.encode(), []))
        newest = self._window.newest_token_before(at.offset)
        for reason, out, error in (
            (dead_letters.STALE_TOKEN, admission.refused, f"token {batch.token}, but {newest} was seen before"),
            (
                dead_letters.UNKNOWN_KIND,
                admission.strange,
                "this version does not know the kind, or no job has the id",
            ),
        ):
            if out is not None:
                effects.sends.append(_dead_letter(self._topics, record, out, reason, error))
        effects.counts.update(
            # What goes to outcomes is counted where it is settled.
            admitted=_size(admission.attempts),
            refused_old_leader=_size(admission.refused),
            published_twice=admission.duplicates,
            records_repeated=int(admission.again),
        )

    def _now_us(self) -> int:
        return self._clock.boot_ns() // 1000


class Settling:
    """Outcomes to the status of jobs, retries, dead letters and the runs whose turn it is."""

    name = "settle"

    def __init__(self, topics: Topics, rows: Rows, waiting: Rows, queue_limit: int) -> None:
        self._topics = topics
        self._rows = rows
        self._tables = settlement.Tables(self._known, waiting, queue_limit)

    def decide(self, records: Sequence[Record]) -> Effects:
        effects = Effects()
        step = settlement.Step(self._tables)
        for record in records:
            batch = _decode(record)
            if isinstance(batch, PoisonRecord):
                _set_aside(effects, self._topics, record, batch)
            elif step.takes(batch):
                self._follow(effects, record, batch, step.settle(batch, record.offset))
            else:
                break
            effects.taken += 1
        settled = step.end()
        effects.jobs = settled.statuses
        effects.rows = {status.key_of(job): known.encode() for job, known in settled.statuses.items()}
        effects.waiting = settled.waiting
        effects.counts.update({_COUNTED_AS[kind]: count for kind, count in settled.ended.items()})
        effects.running = settled.running
        return effects

    def _follow(self, effects: Effects, record: Record, batch: Batch, following: Following) -> None:
        if following.starts or following.closed or following.retries:
            effects.sends += self._onward(following, batch, record)
        for one in following.refused:
            item = batch.select(np.array([one.index], np.intp)).encode()
            letter = dead_letters.letter_of(record, one.reason, one.error, "streams", item, one.subject)
            effects.sends.append(Send(self._topics.dead_letter, *letter))
        given_up = sum(one.subject is not None for one in following.refused)
        effects.counts.update(
            admitted=len(following.starts),
            retries=len(following.retries),
            given_up=given_up,
            unreadable=len(following.refused) - given_up,
        )

    def is_deleted(self, job_id: int) -> bool:
        """Whether the job's deletion has been settled."""
        known = self._known(job_id)
        return known is not None and known.deleted

    def _onward(self, following: Following, batch: Batch, record: Record) -> Iterator[Send]:
        """Runs that start, that end here and that are tried again, each record a part of this one's source."""
        part = count()
        # A run that waited is said to be published when its leader published it, whenever its turn came.
        by_publication: dict[tuple[int, int], list[Item]] = {}
        for token, published_at, item in following.starts:
            by_publication.setdefault((token, published_at), []).append(item)
        groups = [(self._topics.attempts, *publication, items) for publication, items in by_publication.items()]
        groups.append((self._topics.outcomes, batch.token, batch.published_at, following.closed))
        for tier, retries in in_tiers(following.retries, batch.published_at):
            groups.append((retry_topic(self._topics, tier), batch.token, batch.published_at, retries))
        for topic, token, published_at, items in groups:
            for some in in_batches(items):
                source = Source(record.topic, record.partition, record.offset, next(part))
                out = Batch.of(some, token=token, published_at=published_at, source=source)
                yield Send(topic, record.key, out.encode(), [])

    def _known(self, job_id: int) -> JobStatus | None:
        value = self._rows(status.key_of(job_id))
        return None if value is None else JobStatus.decode(value)


def retry_topic(topics: Topics, tier: Tier) -> str:
    """Where a retry goes next."""
    return topics.retry_due if tier is None else topics.retry(tier)


def set_aside(topics: Topics, record: Record, reason: str, error: str) -> Effects:
    """The whole record to the dead-letter topic, as it was read."""
    letter = dead_letters.letter_of(record, reason, error, "streams")
    return Effects([Send(topics.dead_letter, *letter)], counts=Counter(unreadable=1), taken=1)


def _set_aside(effects: Effects, topics: Topics, record: Record, error: PoisonRecord) -> None:
    aside = set_aside(topics, record, dead_letters.POISON_RECORD, str(error))
    effects.sends += aside.sends
    effects.counts.update(aside.counts)


def _dead_letter(topics: Topics, record: Record, items: Batch, reason: str, error: str) -> Send:
    return Send(topics.dead_letter, *dead_letters.letter_of(record, reason, error, "streams", items.encode()))


def _decode(record: Record) -> Batch | PoisonRecord:
    try:
        return Batch.decode(record.value)
    except PoisonRecord as error:
        return error


def _size(batch: Batch | None) -> int:
    return 0 if batch is None else len(batch)
