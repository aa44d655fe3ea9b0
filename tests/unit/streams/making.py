"""Batches for the tests of streams."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cronstream.bodies import Deleted, Policy, Report, Skip, Work, pack
from cronstream.clock import SECOND
from cronstream.records import Batch, Item, Kind, Source
from streams.settlement import Refusal, Step, Tables
from streams.status import JobStatus

NOON = 1_780_000_000 * SECOND
TRIGGERS = "cronstream.triggers"
WORK = pack(Work("acme", "report", "log", b"{}", Policy()))


def work(**policy: Any) -> bytes:
    return pack(Work("acme", "report", "log", b"{}", Policy(**policy)))


def run(
    job_id: int,
    scheduled_us: int = NOON,
    request_id: int = 0,
    attempt: int = 1,
    kind: Kind = Kind.RUN,
    body: bytes = WORK,
) -> Item:
    return Item(kind, job_id, scheduled_us, request_id, attempt, body)


def skip(job_id: int, last: int = NOON, count: int = 1, reason: str = "misfire") -> Item:
    return Item(Kind.SKIP, job_id, last, 0, 1, pack(Skip("acme", "report", reason, last, last, count)))


def cancel(job_id: int) -> Item:
    return Item(Kind.CANCEL, job_id, NOON, body=pack(Deleted("acme", "report")))


def triggers(items: Iterable[Item], token: int = 1, published_at: int = NOON) -> Batch:
    return Batch.of(list(items), token=token, published_at=published_at)


def at(offset: int) -> Source:
    return Source(TRIGGERS, 0, offset)


def outcome(
    kind: Kind,
    job_id: int,
    scheduled_us: int = NOON,
    attempt: int = 1,
    error: str | None = None,
    work: bytes | None = WORK,
    **more: Any,
) -> Item:
    ended = None if kind is Kind.STARTED else scheduled_us + 2 * SECOND
    kept = None if kind in (Kind.STARTED, Kind.SUCCEEDED) else work
    report = Report("acme", "report", "w1", scheduled_us, scheduled_us + SECOND, ended, error, work=kept, **more)
    return Item(kind, job_id, scheduled_us, 0, attempt, pack(report))


def skipped(job_id: int, last: int = NOON, count: int = 1) -> Item:
    return Item(Kind.SKIPPED, job_id, last, 0, 0, pack(Skip("acme", "report", "misfire", last, last, count)))


def outcomes(items: Iterable[Item], token: int = 1, source: Source | None = None) -> Batch:
    return Batch.of(list(items), token=token, published_at=NOON, source=source)


def runs(batch: Batch | None) -> list[tuple[int, int, int, int]]:
    return [] if batch is None else [(*item.run, item.attempt) for item in batch.items()]


@dataclass(frozen=True)
class Settled:
    """A record settled in a step of its own: what follows from it, and what is written."""

    starts: list[tuple[int, int, Item]]
    closed: list[Item]
    retries: list[Item]
    refused: list[Refusal]
    statuses: dict[int, JobStatus]
    waiting: dict[bytes, bytes | None]
    ended: dict[Kind, int]
    running: int


def settle(tables: Tables, batch: Batch, offset: int) -> Settled:
    step = Step(tables)
    after, written = step.settle(batch, offset), step.end()
    return Settled(
        after.starts,
        after.closed,
        after.retries,
        after.refused,
        written.statuses,
        written.waiting,
        written.ended,
        written.running,
    )
