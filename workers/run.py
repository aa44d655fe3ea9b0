"""A record of attempts being worked on, and one of its runs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from cronstream.bodies import Report, Work
from cronstream.records import Item, Kind, Source
from workers.attempt import Attempt
from workers.donelog import Key


@dataclass(slots=True, eq=False)
class Tenure:
    """One stretch of holding a partition, from its takeover until it is handed back or lost."""

    partition: int
    over: bool = False
    """Nothing of it may start, and nothing may be said of it."""


@dataclass(slots=True, eq=False)
class Record:
    """One record of attempts: where it lies and what its outcomes repeat of it."""

    topic: str
    tenure: Tenure
    offset: int
    token: int
    published_at: int
    parts: int = 0
    """Outcomes records written for it by this worker."""

    @property
    def partition(self) -> int:
        """The number of its partition, equal on attempts and outcomes."""
        return self.tenure.partition

    def next_source(self) -> Source:
        """The source of its next outcomes record."""
        source = Source(self.topic, self.partition, self.offset, self.parts)
        self.parts += 1
        return source


@dataclass(slots=True, eq=False)
class Run:
    """One item: waiting, starting or running."""

    record: Record
    job_id: int
    scheduled_us: int
    request_id: int
    attempt: int
    body: bytes
    work: Work | None
    """None: the body could not be read."""
    started_by: str = ""
    """The worker that started it, if that was another life than this one."""
    started_at: int = 0
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def tenant(self) -> str:
        """Whose slot it takes."""
        return self.work.tenant if self.work else ""

    @property
    def handler(self) -> str:
        """What is to run it."""
        return self.work.handler if self.work else ""

    @property
    def key(self) -> Key:
        """What is started at most once."""
        return (self.job_id, self.scheduled_us, self.request_id, self.attempt)

    def to_attempt(self, deadline_us: int) -> Attempt:
        """What its handler sees."""
        assert self.work is not None
        return Attempt(
            self.work,
            self.job_id,
            self.scheduled_us,
            self.request_id,
            self.attempt,
            self.record.token,
            deadline_us,
        )

    def item(self, kind: Kind, body: bytes) -> Item:
        """Its item on outcomes."""
        return Item(kind, self.job_id, self.scheduled_us, self.request_id, self.attempt, body)

    def report(self, worker: str, **end: Any) -> Report:
        """What ``worker`` says of it; ``end``: the fields of a ``Report`` about how it ended.

        It bears the name of who started it: of a lost attempt one looks for the log of the worker that ran it.
        """
        name = self.work.name if self.work else ""
        return Report(self.tenant, name, self.started_by or worker, self.record.published_at, self.started_at, **end)
