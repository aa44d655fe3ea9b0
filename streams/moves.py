"""What the mover holds and what is due of it: the heads of the retry topics' partitions. Pure.

A partition's records are taken from the topic as they come and handed on from the front, when the front is
due: what came first is due first. What a moment hands on is put together anew, by where it goes and by token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cronstream import dead_letters
from cronstream.dead_letters import Letter, Record
from cronstream.records import Batch, Item, Kind, PoisonRecord, in_batches
from cronstream.topics import RETRY_TIERS, Topics
from streams.tiers import due_us, in_tiers

Place = tuple[str, int]
"""A topic and its partition."""
AT_ONCE = 0
"""When a record is due that cannot be read."""
STAGE = "mover"


@dataclass(frozen=True, slots=True)
class Out:
    """A record to produce."""

    topic: str
    partition: int
    letter: Letter


@dataclass(slots=True)
class Move:
    """One transaction: records to produce, and by place the offset to go on from."""

    out: list[Out] = field(default_factory=list)
    offsets: dict[Place, int] = field(default_factory=dict)
    retries: int = 0
    """How many items it hands on."""


@dataclass(frozen=True, slots=True)
class _Held:
    record: Record
    batch: Batch | PoisonRecord
    due: int


class Heads:
    """The records that were taken and not handed on, by partition."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._tiers = {topics.retry(tier): tier for tier in RETRY_TIERS}
        self._held: dict[Place, deque[_Held]] = {}

    def take(self, record: Record) -> None:
        """Hold the next record of its partition."""
        try:
            batch: Batch | PoisonRecord = Batch.decode(record.value)
        except PoisonRecord as error:
            batch = error
        due = due_us(self._tiers[record.topic], batch) if isinstance(batch, Batch) else AT_ONCE
        self._held.setdefault((record.topic, record.partition), deque()).append(_Held(record, batch, due))

    def forget(self, places: Iterable[Place]) -> None:
        """These partitions are someone else's now."""
        for place in places:
            self._held.pop(place, None)

    @property
    def places(self) -> set[Place]:
        """The partitions of which something is held: no more needs to be taken of them."""
        return set(self._held)

    def next_due_us(self) -> int | None:
        """When the first head is due; None if nothing is held."""
        return min((held[0].due for held in self._held.values()), default=None)

    def move(self, now_us: int) -> Move:
        """Everything that is due at ``now_us``. It stays held until ``moved``."""
        move = Move()
        items: dict[tuple[int, int], list[Item]] = {}
        for (topic, partition), held in self._held.items():
            for one in held:
                if one.due > now_us:
                    break
                move.offsets[topic, partition] = one.record.offset + 1
                if isinstance(one.batch, PoisonRecord):
                    move.out.append(self._set_aside(one.record, dead_letters.POISON_RECORD, str(one.batch)))
                    continue
                readable = self._readable(move, one.record, one.batch)
                items.setdefault((partition, one.batch.token), []).extend(readable)
        for (partition, token), retries in items.items():
            move.retries += len(retries)
            self._onward(move, partition, token, retries, now_us)
        return move

    def moved(self, offsets: Mapping[Place, int]) -> None:
        """What lies below these offsets was handed on."""
        for place, offset in offsets.items():
            held = self._held.get(place)
            while held and held[0].record.offset < offset:
                held.popleft()
            if held is not None and not held:
                del self._held[place]

    def _onward(self, move: Move, partition: int, token: int, retries: list[Item], now_us: int) -> None:
        for tier, group in in_tiers(retries, now_us):
            topic = self._topics.retry_due if tier is None else self._topics.retry(tier)
            for some in in_batches(group):
                value = Batch.of(some, token=token, published_at=now_us).encode()
                move.out.append(Out(topic, partition, Letter(None, value, [])))

    def _readable(self, move: Move, record: Record, batch: Batch) -> list[Item]:
        """The retries of a record; what else is in it is set aside."""
        strange = batch.select(batch.kind != Kind.RUN)
        if len(strange):
            out = self._set_aside(record, dead_letters.UNKNOWN_KIND, "not a retry", strange.encode())
            move.out.append(out)
        return list(batch.select(batch.kind == Kind.RUN).items())

    def _set_aside(self, record: Record, reason: str, error: str, value: bytes | None = None) -> Out:
        letter = dead_letters.letter_of(record, reason, error, STAGE, value)
        return Out(self._topics.dead_letter, record.partition, letter)
