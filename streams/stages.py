"""From a record to what must be done about it: decode, decide, list the effects. No I/O.

A stage holds the state of one partition. ``decide`` never raises over what a
record holds: what cannot be read is an effect too, a dead letter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from cronstream import dead_letters
from cronstream.clock import SECOND
from cronstream.dead_letters import Headers, Record
from cronstream.records import Batch, Kind, PoisonRecord, Source
from cronstream.topics import Topics
from streams import status, window
from streams.admission import admit
from streams.settlement import settle
from streams.status import JobStatus

Rows = Callable[[bytes], bytes | None]

_COUNTED_AS = {Kind.CANCEL: "jobs_deleted", **{kind: kind.name.lower() for kind in status.COUNTED}}
COUNTERS = (
    "admitted",
    "published_twice",
    "refused_old_leader",
    "records_repeated",
    "unreadable",
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
    """Everything that must be acknowledged before the next record is taken."""

    sends: list[Send] = field(default_factory=list)
    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    """Rows of the stage's table to write, or with None to delete."""
    counts: Counter[str] = field(default_factory=Counter)
    running: int = 0
    """By how many the runs under way become more."""


class Stage(Protocol):
    """What a lane does with the records of its partition."""

    def decide(self, record: Record) -> Effects:
        """The effects of the partition's next record."""


class Admitting:
    """Triggers to attempts."""

    def __init__(self, topics: Topics, window_seconds: float, rows: Iterable[bytes]) -> None:
        self._topics = topics
        self._window = window.Window(round(window_seconds * SECOND), map(window.Row.decode, rows))

    def decide(self, record: Record) -> Effects:
        batch = _decode(record)
        if isinstance(batch, PoisonRecord):
            return _set_aside(self._topics, record, batch)
        at = Source(record.topic, record.partition, record.offset)
        admission = admit(self._window, batch, at)
        gone = self._window.leftover + self._window.add(admission.row)
        self._window.leftover = []
        effects = Effects(rows={**dict.fromkeys(gone), admission.row.key: admission.row.encode()})
        for topic, out in ((self._topics.attempts, admission.attempts), (self._topics.outcomes, admission.outcomes)):
            if out is not None:
                effects.sends.append(Send(topic, record.key, out.encode(), []))
        newest = self._window.newest_token_before(at.offset)
        for reason, out, error in (
            (dead_letters.STALE_TOKEN, admission.refused, f"token {batch.token}, but {newest} was seen before"),
            (dead_letters.UNKNOWN_KIND, admission.strange, "this version does not know the kind"),
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
        return effects


class Settling:
    """Outcomes to the status of jobs."""

    def __init__(self, topics: Topics, rows: Rows) -> None:
        self._topics = topics
        self._rows = rows

    def decide(self, record: Record) -> Effects:
        batch = _decode(record)
        if isinstance(batch, PoisonRecord):
            return _set_aside(self._topics, record, batch)
        settlement = settle(self._known, batch, record.offset)
        effects = Effects(rows={status.key_of(job): known.encode() for job, known in settlement.statuses.items()})
        if settlement.poison:
            out = batch.select(np.array([index for index, _ in settlement.poison], np.intp))
            why = settlement.poison[0][1]
            effects.sends.append(_dead_letter(self._topics, record, out, dead_letters.POISON_ITEM, why))
            effects.counts["unreadable"] = len(settlement.poison)
        effects.counts.update({_COUNTED_AS[kind]: count for kind, count in settlement.ended.items()})
        effects.running = settlement.running
        return effects

    def _known(self, job_id: int) -> JobStatus | None:
        value = self._rows(status.key_of(job_id))
        return None if value is None else JobStatus.decode(value)


def set_aside(topics: Topics, record: Record, reason: str, error: str) -> Effects:
    """The whole record to the dead-letter topic, as it was read."""
    letter = dead_letters.letter_of(record, reason, error, "streams")
    return Effects([Send(topics.dead_letter, *letter)], {}, Counter(unreadable=1))


def _set_aside(topics: Topics, record: Record, error: PoisonRecord) -> Effects:
    return set_aside(topics, record, dead_letters.POISON_RECORD, str(error))


def _dead_letter(topics: Topics, record: Record, items: Batch, reason: str, error: str) -> Send:
    return Send(topics.dead_letter, *dead_letters.letter_of(record, reason, error, "streams", items.encode()))


def _decode(record: Record) -> Batch | PoisonRecord:
    try:
        return Batch.decode(record.value)
    except PoisonRecord as error:
        return error


def _size(batch: Batch | None) -> int:
    return 0 if batch is None else len(batch)
