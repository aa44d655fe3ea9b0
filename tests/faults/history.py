"""What a run recorded: JSON lines, one event each. All that the judges know.

Instants are microseconds, UTC, by the clock of the one machine that the run had
(Postgres reads the same one). A history is written while the run goes on and
read back whole, so a run can be judged again long after its servers are gone.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

Run = tuple[int, int, int]
"""(job_id, scheduled time, request_id)"""


class _Event(msgspec.Struct, frozen=True, tag_field="event", omit_defaults=True):
    pass


class Rule(msgspec.Struct, frozen=True, omit_defaults=True):
    """The columns of a definition that say when it fires and what its runs are owed."""

    cron: str | None = None
    every_us: int | None = None
    run_at_us: int | None = None
    timezone: str = "UTC"
    starts_at_us: int | None = None
    ends_at_us: int | None = None
    spread_us: int = 0
    """As the database computes it from spread_seconds."""
    enabled: bool = True
    misfire_policy: str = "FIRE_NOW"
    grace_us: int = 60_000_000
    catch_up_limit: int = 100
    overlap_policy: str = "allow"
    max_attempts: int = 5
    backoff_seconds: float = 30.0
    backoff_factor: float = 2.0
    jitter: str = "full"
    timeout_seconds: float = 300.0
    answers: str = "ok"
    """How the target treats it: see receiver.py."""


class Edit(_Event, frozen=True, tag="edit"):
    """A committed insert, update or (``rule`` None) delete."""

    job_id: int
    committed_us: int
    rule: Rule | None


class Jump(_Event, frozen=True, tag="jump"):
    """A zone of this run's own time zone data: its one change of offset (seconds east of UTC)."""

    zone: str
    at_us: int
    before_seconds: int
    after_seconds: int


class Request(_Event, frozen=True, tag="request"):
    """A committed run-now, for one instant of its own, or backfill of the scheduled times from ``first_us`` on."""

    request_id: int
    job_id: int
    committed_us: int
    kind: str
    """run-now or backfill."""
    first_us: int
    last_us: int
    """Included; of a run-now the same as the first."""
    command: str = ""
    """The id of the command in Kafka that asked for it."""


class Command(_Event, frozen=True, tag="command"):
    """A run-now that was sent to the commands topic, and acknowledged by the broker."""

    id: str
    sent_us: int


class Trigger(_Event, frozen=True, tag="trigger"):
    """A scheduled time on the triggers topic."""

    partition: int
    offset: int
    token: int
    published_us: int
    job_id: int
    scheduled_us: int
    request_id: int = 0


class Skip(_Event, frozen=True, tag="skip"):
    """Scheduled times that do not run, as published on outcomes: ``count`` of them from first to last."""

    job_id: int
    first_us: int
    last_us: int
    count: int
    reason: str
    published_us: int
    request_id: int = 0


class Attempt(_Event, frozen=True, tag="attempt"):
    """An admitted attempt; ``source`` is the record that it was decided from."""

    partition: int
    offset: int
    source: tuple[str, int, int, int]
    """(short topic name, partition, offset, part)"""
    token: int
    job_id: int
    scheduled_us: int
    request_id: int = 0
    attempt: int = 1
    at_us: int = 0
    """When the broker took the record."""

    @property
    def run(self) -> Run:
        return (self.job_id, self.scheduled_us, self.request_id)


class Retry(_Event, frozen=True, tag="retry"):
    """A further attempt, where it waits or is due: a record of a retry topic (short name)."""

    topic: str
    partition: int
    offset: int
    job_id: int
    scheduled_us: int
    request_id: int = 0
    attempt: int = 2
    not_before_us: int = 0

    @property
    def run(self) -> Run:
        return (self.job_id, self.scheduled_us, self.request_id)


class Outcome(_Event, frozen=True, tag="outcome"):
    """How an attempt began or ended: started, succeeded, failed, timed_out, lost, cancelled."""

    how: str
    job_id: int
    scheduled_us: int
    request_id: int
    attempt: int
    worker: str = ""
    started_us: int = 0
    finished_us: int | None = None

    @property
    def run(self) -> Run:
        return (self.job_id, self.scheduled_us, self.request_id)


class Execution(_Event, frozen=True, tag="execution"):
    """A call that the target got."""

    at_us: int
    job_id: int
    scheduled_us: int
    request_id: int
    attempt: int
    token: int

    @property
    def run(self) -> Run:
        return (self.job_id, self.scheduled_us, self.request_id)


class Row(_Event, frozen=True, tag="row"):
    """A row of job_runs."""

    job_id: int
    scheduled_us: int
    request_id: int
    attempt: int
    outcome: str
    reason: str | None = None
    first_us: int | None = None
    count: int = 1
    token: int = 0

    @property
    def run(self) -> Run:
        return (self.job_id, self.scheduled_us, self.request_id)


class DeadLetter(_Event, frozen=True, tag="dead_letter"):
    """An item that was set aside."""

    reason: str
    job_id: int
    scheduled_us: int
    request_id: int = 0
    attempt: int = 0
    token: int = 0

    @property
    def run(self) -> Run:
        return (self.job_id, self.scheduled_us, self.request_id)


class Fault(_Event, frozen=True, tag="fault"):
    """One fault, from the first disturbance until all was put right again."""

    name: str
    target: str
    began_us: int
    ended_us: int
    hit: bool
    """Whether it was seen to have happened: the process died, the connection broke, the slot was gone."""
    detail: str = ""


class Process(_Event, frozen=True, tag="process"):
    """A process of the product began or ended; ``why``: started, killed, stopped, died."""

    at_us: int
    node: str
    why: str


class Stuck(_Event, frozen=True, tag="stuck"):
    """The system did not come back by itself in time; the run ends there."""

    at_us: int
    what: str


class Leader(_Event, frozen=True, tag="leader"):
    """Who led, as etcd said when it was asked."""

    at_us: int
    node: str
    token: int


class Figure(_Event, frozen=True, tag="figure"):
    """A measurement of the run itself: memory, files, what a page said."""

    at_us: int
    name: str
    value: float


class Window(_Event, frozen=True, tag="window"):
    """The stretch that is judged; ``seed`` and ``minutes`` reproduce the run."""

    from_us: int
    until_us: int
    seed: int
    minutes: float
    settled: bool = True
    """False when the run ended before everything owed had come to its end."""


Event = (
    Edit
    | Jump
    | Request
    | Command
    | Trigger
    | Skip
    | Attempt
    | Retry
    | Outcome
    | Execution
    | Row
    | DeadLetter
    | Fault
    | Process
    | Stuck
    | Leader
    | Figure
    | Window
)

E = TypeVar("E", bound=_Event)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


class Recorder:
    """Appends events to a file; from any thread."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.Lock()
        file.parent.mkdir(parents=True, exist_ok=True)
        self._out = file.open("ab")

    def record(self, *events: Event) -> None:
        """Write events, whole lines at once."""
        with self._lock:
            self._out.write(b"".join(_encoder.encode(event) + b"\n" for event in events))
            self._out.flush()

    def close(self) -> None:
        self._out.close()


def read_events(file: Path) -> Iterator[Event]:
    """The events of a file, in the order of writing; a last line that was cut is left out."""
    with file.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield _decoder.decode(line)


class History:
    """The events of one run by kind, with the look-ups that judges share."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._by_kind: dict[type, list[Any]] = defaultdict(list)
        for event in events:
            self._by_kind[type(event)].append(event)

    @classmethod
    def read(cls, file: Path) -> History:
        return cls(read_events(file))

    def of(self, kind: type[E]) -> list[E]:
        """All events of one kind, in the order of writing."""
        return self._by_kind[kind]

    @cached_property
    def window(self) -> Window:
        windows = self.of(Window)
        assert len(windows) == 1, "a history has one window, written last: this run did not come to its end"
        return windows[0]

    @cached_property
    def admitted(self) -> list[Attempt]:
        """The attempts that workers took: in the order of the topic, a second emission of a source left out.

        A worker keeps the highest source taken of each partition and topic, and drops what is not above it.
        """
        taken: dict[tuple[int, str, int], tuple[int, int]] = {}
        admitted = []
        ordered = sorted(self.of(Attempt), key=lambda attempt: (attempt.partition, attempt.offset))
        for _, record in _by_record(ordered):
            topic, partition, offset, part = record[0].source
            place = (record[0].partition, topic, partition)
            if place in taken and (offset, part) <= taken[place]:
                continue
            taken[place] = (offset, part)
            admitted += record
        return admitted

    @cached_property
    def first_admitted(self) -> dict[Run, Attempt]:
        """By run, its first attempt."""
        first: dict[Run, Attempt] = {}
        for attempt in self.admitted:
            if attempt.attempt == 1:
                first.setdefault(attempt.run, attempt)
        return first

    @cached_property
    def skips_by_job(self) -> dict[int, list[Skip]]:
        by_job: dict[int, list[Skip]] = defaultdict(list)
        for skip in self.of(Skip):
            by_job[skip.job_id].append(skip)
        return by_job

    @cached_property
    def ends(self) -> dict[Run, dict[int, str]]:
        """By run and attempt, how it ended. An end that is known beats ``lost``."""
        ends: dict[Run, dict[int, str]] = defaultdict(dict)
        for outcome in self.of(Outcome):
            if outcome.how != "started" and ends[outcome.run].get(outcome.attempt, "lost") == "lost":
                ends[outcome.run][outcome.attempt] = outcome.how
        return ends

    @cached_property
    def executed(self) -> dict[Run, list[Execution]]:
        """By run, its calls in order of time."""
        executed: dict[Run, list[Execution]] = defaultdict(list)
        for execution in sorted(self.of(Execution), key=lambda execution: execution.at_us):
            executed[execution.run].append(execution)
        return executed

    def in_fault(self, from_us: int, until_us: int, *, after_us: int = 0) -> bool:
        """Whether some of [from_us, until_us] lies in a fault's window, or so long after it."""
        return any(fault.began_us <= until_us and from_us <= fault.ended_us + after_us for fault in self.of(Fault))


def _by_record(attempts: Iterable[Attempt]) -> Iterator[tuple[tuple[int, int], list[Attempt]]]:
    record: list[Attempt] = []
    for attempt in attempts:
        if record and (record[0].partition, record[0].offset) != (attempt.partition, attempt.offset):
            yield (record[0].partition, record[0].offset), record
            record = []
        record.append(attempt)
    if record:
        yield (record[0].partition, record[0].offset), record
