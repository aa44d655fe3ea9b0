"""What the reader hands to the dispatcher, through the mailbox, in the order of reading."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coordinator.planning import Change
from coordinator.requests import Step
from coordinator.rules import Rule


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its rows say: what the wheel is to hold."""

    job_id: int
    next_us: int
    """A lower bound of its next scheduled time; usually that time itself."""
    version: int
    rule: Rule
    work: bytes
    error: str | None = None
    """Why its definition cannot be read: the job is set aside, and that is recorded."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Jobs read from ``schedules``. ``as_of``: all writes up to that number had been done before."""

    jobs: Sequence[Job]
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
        """The oldest arrival, or None."""
        self._filled.clear()
        return self._arrivals.popleft() if self._arrivals else None

    def wake(self) -> None:
        """End a wait early."""
        self._filled.set()

    def wait(self, seconds: float) -> None:
        """Until something arrives, at most so long."""
        if not self._arrivals:
            self._filled.wait(seconds)

    def __len__(self) -> int:
        return len(self._arrivals)
