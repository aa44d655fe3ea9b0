"""Whose turn it is, for jobs whose runs must not overlap (``overlap_policy`` queue or skip). Pure.

Admission hands such runs on to outcomes, so one log, the job's partition of outcomes, holds in one order
which runs arrived and which ended, and settlement, which reads it, alone decides:

    arrives, nobody under way         starts
    arrives, queue, room              waits; its body is a row of its own, by its place
    arrives, queue, no room           skipped: queue full
    arrives, skip                     skipped: overlap
    the run under way is over         the first that waits starts

A run is under way until it is over for good: its retries are part of it. What is kept of a job is a few
numbers, as they are and as they were before the last record, so that a record that comes again
is decided again from where it was, and its effects are the same.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from cronstream.records import Batch, Item, Kind


class Turn(Enum):
    """What becomes of a run that arrives."""

    START = 0
    WAIT = 1
    SKIP = 2


class UnderWay(msgspec.Struct, array_like=True, frozen=True):
    """The run that the others wait for."""

    scheduled: int
    request_id: int
    attempt: int
    """The attempt whose end is awaited."""
    place: int | None
    """Where it had waited; None if it started at once."""


class Overlap(msgspec.Struct, array_like=True, frozen=True):
    """One job: who is under way, and the places from ``head`` to before ``tail`` who wait."""

    running: UnderWay | None = None
    head: int = 0
    tail: int = 0
    admitted: int = -1
    """The triggers offset of the latest record whose runs arrived; admission may hand one on twice."""
    swept: int = 0
    """Places below it have no row any more."""

    @property
    def waiting(self) -> int:
        """How many wait."""
        return self.tail - self.head

    @property
    def first_kept(self) -> int:
        """The first place whose row is still needed: that of the run under way, or the head's."""
        place = None if self.running is None else self.running.place
        return self.head if place is None else place


def arrive(overlap: Overlap, item: Item, limit: int) -> tuple[Overlap, Turn]:
    """A run comes; if it is to wait, its place is the ``tail`` before."""
    if overlap.running is None:
        return _with(overlap, running=UnderWay(item.scheduled_us, item.request_id, item.attempt, None)), Turn.START
    if item.kind is Kind.RUN_ALONE or overlap.waiting >= limit:
        return overlap, Turn.SKIP
    return _with(overlap, tail=overlap.tail + 1), Turn.WAIT


def end(overlap: Overlap, item: Item, over: bool) -> tuple[Overlap, bool]:
    """An attempt ended, and its run with it if ``over``. True: the run under way is over, the next one's turn."""
    running = overlap.running
    if (
        running is None
        or (running.scheduled, running.request_id) != (item.scheduled_us, item.request_id)
        or item.attempt < running.attempt
    ):
        return overlap, False
    if over:
        return _with(overlap, running=None), True
    return _with(overlap, running=msgspec.structs.replace(running, attempt=item.attempt + 1)), False


def start(overlap: Overlap, first: Item) -> Overlap:
    """The head of the queue starts."""
    running = UnderWay(first.scheduled_us, first.request_id, first.attempt, overlap.head)
    return _with(overlap, running=running, head=overlap.head + 1)


def _with(overlap: Overlap, **changes: object) -> Overlap:
    return msgspec.structs.replace(overlap, **changes)


class Waiting(msgspec.Struct, array_like=True, frozen=True):
    """A run that waits, as a row of the table of waiting runs."""

    token: int
    published_at: int
    kind: Kind
    scheduled: int
    request_id: int
    attempt: int
    body: bytes

    @classmethod
    def of(cls, item: Item, batch: Batch) -> Waiting:
        """A run that arrived in that record."""
        return cls(
            batch.token, batch.published_at, item.kind, item.scheduled_us, item.request_id, item.attempt, item.body
        )

    def item(self, job_id: int) -> Item:
        """The run as it arrived."""
        return Item(self.kind, job_id, self.scheduled, self.request_id, self.attempt, self.body)

    def encode(self) -> bytes:
        """The row's value."""
        return _encoder.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> Waiting:
        """A row as stored."""
        return _decoder.decode(value)


def key_of(job_id: int, place: int) -> bytes:
    """A waiting run's key in its table."""
    return job_id.to_bytes(8, "big", signed=True) + place.to_bytes(8, "big")


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Waiting)
