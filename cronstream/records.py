"""Records on the wire: batches of items, packed by column.

A record on triggers, attempts, outcomes or a retry topic is one ``Batch``:
items of one partition and one moment. A Faust record costs a hundred times an
item, so the identities lie in packed integer columns and the items' bodies
behind one another in a single byte string: who only routes never decodes a body.

    schema, token, published_at, source      once a batch
    kind        uint8   an item               what the item is (``Kind``)
    job_id      int64                         \\
    scheduled   int64   microseconds, UTC      > the run
    request_id  int64   0: the schedule's own /
    attempt     int32   from 1
    ends        uint32                        where the item's body ends in ``bodies``
    bodies      bytes                         msgpack of ``Work`` | ``Skip`` | ``Report``
    not_before  int64   microseconds, UTC     a retry waits for it; no column where nothing waits

The frame is msgpack. A record that is not a batch raises ``PoisonRecord``; a
body that cannot be read raises ``PoisonItem``, and the rest of its batch goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import repeat

import msgspec
import numpy as np
import numpy.typing as npt

from cronstream.bodies import PoisonItem

SCHEMA = 1
MAX_ITEMS = 500
MAX_BYTES = 256 * 1024

Int64s = npt.NDArray[np.int64]


class PoisonRecord(ValueError):
    """A record that is not a batch of a known schema."""


class Kind(IntEnum):
    """What an item says. One numbering for all topics."""

    RUN = 1
    """triggers: run this, whatever else of the job runs; attempts: run this (body: ``Work``; so for all runs)."""
    SKIP = 2
    """triggers: scheduled times that do not run, and why (body: ``Skip``)."""
    CANCEL = 3
    """triggers, and handed on to outcomes: the job was deleted; its retries end (body: empty)."""
    RUN_QUEUED = 4
    """triggers, and handed on to outcomes: run this once no other run of the job is under way (policy queue)."""
    RUN_ALONE = 5
    """triggers, and handed on to outcomes: run this if no other run of the job is under way (policy skip)."""
    STARTED = 10
    """outcomes: a worker is about to run it (body: ``Report``)."""
    SUCCEEDED = 11
    """outcomes: the handler ended well (body: ``Report``; so for all below)."""
    FAILED = 12
    """outcomes: the handler said no, or broke."""
    TIMED_OUT = 13
    """outcomes: the handler was stopped at its deadline."""
    LOST = 14
    """outcomes: started, and its worker died before it ended."""
    SKIPPED = 15
    """outcomes: a policy decided against the run (body: ``Skip``)."""
    CANCELLED = 16
    """outcomes: admitted, and ended without a try because the job was deleted (body: ``Report``)."""

    @property
    def is_end(self) -> bool:
        """True for every outcome after which an attempt is over."""
        return self > Kind.STARTED


RUN_KINDS = {"allow": Kind.RUN, "queue": Kind.RUN_QUEUED, "skip": Kind.RUN_ALONE}
"""What a run of each overlap policy is on triggers."""


_KINDS = {int(kind): kind for kind in Kind}
_IS_RUN = np.isin(np.arange(256), list(RUN_KINDS.values()))


def are_runs(kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Which items of a triggers record are to run."""
    runs: npt.NDArray[np.bool_] = _IS_RUN[kinds]
    return runs


class Source(msgspec.Struct, array_like=True, frozen=True, order=True):
    """Where a decision came from: the input record, and which part of it this is."""

    topic: str
    partition: int
    offset: int
    part: int = 0


class _Frame(msgspec.Struct, array_like=True, frozen=True):
    schema: int
    token: int
    published_at: int
    source: Source | None
    kind: bytes
    job_id: bytes
    scheduled: bytes
    request_id: bytes
    attempt: bytes
    ends: bytes
    bodies: bytes
    not_before: bytes = b""


class Item(msgspec.Struct, frozen=True):
    """One item of a batch, unpacked."""

    kind: Kind
    job_id: int
    scheduled_us: int
    request_id: int = 0
    attempt: int = 1
    body: bytes = b""
    not_before: int = 0
    """The instant before which it must not be tried; 0: at once."""

    @property
    def run(self) -> tuple[int, int, int]:
        """The run's identity: (job_id, scheduled time, request_id)."""
        return (self.job_id, self.scheduled_us, self.request_id)

    @property
    def idempotency_key(self) -> str:
        """The run's identity as text; equal for all its attempts."""
        return idempotency_key(self.job_id, self.scheduled_us, self.request_id)


def idempotency_key(job_id: int, scheduled_us: int, request_id: int = 0) -> str:
    """``job-scheduled-request``, the scheduled time in microseconds."""
    return f"{job_id}-{scheduled_us}-{request_id}"


@dataclass(frozen=True, slots=True)
class Batch:
    """A record's items, by column. Columns are views: never written to."""

    token: int
    published_at: int
    source: Source | None
    kind: npt.NDArray[np.uint8]
    job_id: Int64s
    scheduled: Int64s
    request_id: Int64s
    attempt: npt.NDArray[np.int32]
    ends: npt.NDArray[np.uint32]
    bodies: bytes
    not_before: Int64s | None = None

    def __len__(self) -> int:
        return len(self.kind)

    def body(self, index: int) -> bytes:
        """The undecoded body of one item."""
        start = int(self.ends[index - 1]) if index else 0
        return self.bodies[start : int(self.ends[index])]

    def each_body(self) -> Iterator[bytes]:
        """The undecoded bodies in turn."""
        start = 0
        for end in self.ends.tolist():
            yield self.bodies[start:end]
            start = end

    def items(self) -> Iterator[Item]:
        """The items one by one, bodies undecoded. Raises PoisonItem on an unknown kind."""
        for item in self.each():
            if isinstance(item, PoisonItem):
                raise item
            yield item

    def each(self) -> Iterator[Item | PoisonItem]:
        """The same; in place of an item whose kind this version does not know, what says so."""
        columns = zip(
            self.kind.tolist(),
            self.job_id.tolist(),
            self.scheduled.tolist(),
            self.request_id.tolist(),
            self.attempt.tolist(),
            self.each_body(),
            repeat(0) if self.not_before is None else self.not_before.tolist(),
            strict=False,
        )
        for number, *rest in columns:
            kind = _KINDS.get(number)
            yield _unknown(number) if kind is None else Item(kind, *rest)

    def item(self, index: int) -> Item:
        """One item. Raises PoisonItem if this version does not know its kind."""
        number = int(self.kind[index])
        kind = _KINDS.get(number)
        if kind is None:
            raise _unknown(number)
        return Item(
            kind,
            int(self.job_id[index]),
            int(self.scheduled[index]),
            int(self.request_id[index]),
            int(self.attempt[index]),
            self.body(index),
            0 if self.not_before is None else int(self.not_before[index]),
        )

    def select(self, keep: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Batch:
        """The same batch with only some of its items (a mask or indices)."""
        index = np.flatnonzero(keep) if keep.dtype == np.bool_ else keep
        if len(index) == len(self) and keep.dtype == np.bool_:
            return self
        bodies = [self.body(int(i)) for i in index]
        return Batch(
            self.token,
            self.published_at,
            self.source,
            self.kind[index],
            self.job_id[index],
            self.scheduled[index],
            self.request_id[index],
            self.attempt[index],
            np.cumsum([len(body) for body in bodies], dtype=np.uint32),
            b"".join(bodies),
            None if self.not_before is None else self.not_before[index],
        )

    def from_source(self, source: Source) -> Batch:
        """The same items, said to come from ``source``."""
        return replace(self, source=source)

    def encode(self) -> bytes:
        """The record's value."""
        return _encoder.encode(
            _Frame(
                SCHEMA,
                self.token,
                self.published_at,
                self.source,
                self.kind.tobytes(),
                self.job_id.tobytes(),
                self.scheduled.tobytes(),
                self.request_id.tobytes(),
                self.attempt.tobytes(),
                self.ends.tobytes(),
                self.bodies,
                b"" if self.not_before is None else self.not_before.tobytes(),
            )
        )

    @classmethod
    def decode(cls, value: bytes | None) -> Batch:
        """The batch of a record's value. Raises PoisonRecord, which says what is wrong."""
        try:
            frame = _decoder.decode(value or b"")
        except msgspec.MsgspecError as error:
            raise PoisonRecord(f"not a batch: {error}") from None
        if frame.schema != SCHEMA:
            raise PoisonRecord(f"batch schema {frame.schema}; this version reads {SCHEMA}")
        try:
            batch = cls(
                frame.token,
                frame.published_at,
                frame.source,
                np.frombuffer(frame.kind, np.uint8),
                np.frombuffer(frame.job_id, np.int64),
                np.frombuffer(frame.scheduled, np.int64),
                np.frombuffer(frame.request_id, np.int64),
                np.frombuffer(frame.attempt, np.int32),
                np.frombuffer(frame.ends, np.uint32),
                frame.bodies,
                np.frombuffer(frame.not_before, np.int64) if frame.not_before else None,
            )
        except ValueError as error:
            raise PoisonRecord(f"a column is cut: {error}") from None
        batch._check()
        return batch

    def _check(self) -> None:
        count = len(self.kind)
        columns = (self.job_id, self.scheduled, self.request_id, self.attempt, self.ends, self.not_before)
        if any(column is not None and len(column) != count for column in columns):
            raise PoisonRecord("columns of unequal length")
        last = int(self.ends[-1]) if count else 0
        if last != len(self.bodies) or (count > 1 and bool((self.ends[1:] < self.ends[:-1]).any())):
            raise PoisonRecord("the bodies do not fit their ends")

    @classmethod
    def of(cls, items: Sequence[Item], *, token: int, published_at: int, source: Source | None = None) -> Batch:
        """Pack items into one batch."""
        return cls(
            token,
            published_at,
            source,
            np.array([item.kind for item in items], np.uint8),
            np.array([item.job_id for item in items], np.int64),
            np.array([item.scheduled_us for item in items], np.int64),
            np.array([item.request_id for item in items], np.int64),
            np.array([item.attempt for item in items], np.int32),
            np.cumsum([len(item.body) for item in items], dtype=np.uint32),
            b"".join(item.body for item in items),
            np.array([item.not_before for item in items], np.int64) if any(item.not_before for item in items) else None,
        )


def _unknown(kind: int) -> PoisonItem:
    return PoisonItem(f"{kind} is not a valid Kind")


def in_batches(items: Iterable[Item], max_items: int = MAX_ITEMS, max_bytes: int = MAX_BYTES) -> Iterator[list[Item]]:
    """Cut a stream of items into lists that fit one record each."""
    batch: list[Item] = []
    size = 0
    for item in items:
        if batch and (len(batch) == max_items or size + len(item.body) > max_bytes):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += len(item.body)
    if batch:
        yield batch


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Frame)
