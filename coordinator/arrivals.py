"""What the reader hands to the dispatcher, through the mailbox, in the order of reading."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from coordinator.planning import Change
from coordinator.requests import Step
from coordinator.rules import NO_RULE, Rule
from coordinator.writer import NONE
from cronstream.records import Int64s

MOST_EDITS = 500
"""That are planned, published and stored together."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its rows say: what the wheel is to hold."""

    job_id: int
    next_us: int | None
    """Its next scheduled time."""
    version: int
    rule: Rule
    work: bytes
    error: str | None = None
    """Why it has no times: it is set aside, and that is recorded. ``next_us`` is a lower bound then."""


@dataclass(frozen=True, slots=True)
class JobColumns:
    """Many of them, by column."""

    job_id: Int64s
    next_us: Int64s
    """NONE: there is none."""
    version: Int64s
    period_us: Int64s
    """Of a plain interval, whose rule is the terms alone (``Rule.terms``); else 0."""
    rules: list[Rule]
    works: list[bytes]
    errors: dict[int, str] = field(default_factory=dict)
    """By position."""

    def __len__(self) -> int:
        return len(self.job_id)

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> JobColumns:
        """These jobs."""
        none = np.zeros(len(jobs), np.int64)
        columns = cls(none, none.copy(), none.copy(), none.copy(), [NO_RULE] * len(jobs), [b""] * len(jobs))
        for index, job in enumerate(jobs):
            columns.put(index, job)
        return columns

    def put(self, index: int, job: Job) -> None:
        """Have a job at a position."""
        self.job_id[index] = job.job_id
        self.next_us[index] = NONE if job.next_us is None else job.next_us
        self.version[index] = job.version
        self.period_us[index] = job.rule.period_us
        self.rules[index] = job.rule.terms() if job.rule.period_us else job.rule
        self.works[index] = job.work
        if job.error is not None:
            self.errors[index] = job.error

    def only(self, chosen: npt.NDArray[np.int64]) -> JobColumns:
        """Those at some positions; none with an error."""
        positions = chosen.tolist()
        return JobColumns(
            self.job_id[chosen],
            self.next_us[chosen],
            self.version[chosen],
            self.period_us[chosen],
            [self.rules[position] for position in positions],
            [self.works[position] for position in positions],
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """Jobs read from ``schedules``. ``as_of``: all writes up to that number had been done before."""

    jobs: JobColumns
    as_of: int


@dataclass(frozen=True, slots=True)
class Edit:
    """A job's open changes, its definition (None: deleted) and its schedule's row as read."""

    job_id: int
    changes: tuple[Change, ...]
    revision: int
    definition: Mapping[str, Any] | None
    next_us: int | None
    version: int
    """0: the job has no row yet."""
    anchor_us: int | None


@dataclass(frozen=True, slots=True)
class Edits:
    """Edits to plan, published and stored together."""

    edits: Sequence[Edit]
    as_of: int


@dataclass(frozen=True, slots=True)
class Requested:
    """Steps of requests, to be published when it is their turn."""

    steps: Sequence[Step]


@dataclass(frozen=True, slots=True)
class Horizon:
    """From now on jobs due up to ``until_us`` stay in the wheel. ``taken`` is set when that is so."""

    until_us: int
    taken: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Forget:
    """Jobs whose rows were not as expected: what is held of them is dropped, to be read again."""

    job_ids: Sequence[int]
    taken: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class Audited:
    """Every edit that was open when the term began has been handed over."""


Arrival = Loaded | Edits | Requested | Horizon | Forget | Audited


class Mailbox:
    """Arrivals in order, and one thing to wait for. The reader puts, the dispatcher takes."""

    def __init__(self) -> None:
        self._arrivals: deque[Arrival] = deque()
        self._filled = threading.Event()

    def put(self, arrival: Arrival) -> None:
        """Hand over."""
        self._arrivals.append(arrival)
        self._filled.set()

    def take(self) -> Arrival | None:
        """The oldest arrival, or None. Edits take those right behind them along, if they are of other jobs.

        A turn takes one arrival and costs a transaction or two: where those are slow, edits that waited
        for a turn each would wait longer and longer.
        """
        self._filled.clear()
        if not self._arrivals:
            return None
        arrival = self._arrivals.popleft()
        return self._with_those_behind(arrival) if isinstance(arrival, Edits) else arrival

    def _with_those_behind(self, first: Edits) -> Edits:
        edits, jobs = list(first.edits), {edit.job_id for edit in first.edits}
        while self._arrivals and isinstance(behind := self._arrivals[0], Edits):
            others = {edit.job_id for edit in behind.edits}
            if len(edits) + len(others) > MOST_EDITS or not jobs.isdisjoint(others):
                break
            self._arrivals.popleft()
            edits += behind.edits
            jobs |= others
        # The oldest reading counts for all: what was written since is still known to the dispatcher.
        return Edits(edits, first.as_of)

    def wake(self) -> None:
        """End a wait early."""
        self._filled.set()

    def wait(self, seconds: float) -> None:
        """Until something arrives, at most so long."""
        if not self._arrivals:
            self._filled.wait(seconds)

    def __len__(self) -> int:
        return len(self._arrivals)
