"""What a run may record: one event each.

Instants are microseconds, UTC, by the clock of the one machine that the run had
(Postgres reads the same one).
"""

from __future__ import annotations

import msgspec

Run = tuple[int, int, int]
"""(job_id, scheduled time, request_id)"""


class AnyEvent(msgspec.Struct, frozen=True, tag_field="event", omit_defaults=True):
    """What all have in common."""


class _OfRun(AnyEvent, frozen=True):
    job_id: int
    scheduled_us: int
    request_id: int

    @property
    def run(self) -> Run:
        return (self.job_id, self.scheduled_us, self.request_id)


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


class Edit(AnyEvent, frozen=True, tag="edit"):
    """A committed insert, update or (``rule`` None) delete."""

    job_id: int
    committed_us: int
    rule: Rule | None


class Jump(AnyEvent, frozen=True, tag="jump"):
    """A zone of this run's own time zone data: its one change of offset (seconds east of UTC)."""

    zone: str
    at_us: int
    before_seconds: int
    after_seconds: int


class Request(AnyEvent, frozen=True, tag="request"):
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


class Command(AnyEvent, frozen=True, tag="command"):
    """A run-now that was sent to the commands topic, and acknowledged by the broker."""

    id: str
    sent_us: int


class Trigger(AnyEvent, frozen=True, tag="trigger"):
    """A scheduled time on the triggers topic."""

    partition: int
    offset: int
    token: int
    published_us: int
    job_id: int
    scheduled_us: int
    request_id: int = 0


class Skip(AnyEvent, frozen=True, tag="skip"):
    """Scheduled times that do not run, as published on outcomes: ``count`` of them from first to last."""

    job_id: int
    first_us: int
    last_us: int
    count: int
    reason: str
    published_us: int
    request_id: int = 0


class Attempt(_OfRun, frozen=True, tag="attempt"):
    """An admitted attempt; ``source`` is the record that it was decided from."""

    partition: int
    offset: int
    source: tuple[str, int, int, int]
    """(short topic name, partition, offset, part)"""
    token: int
    attempt: int = 1
    at_us: int = 0
    """When the broker took the record."""


class Retry(_OfRun, frozen=True, tag="retry"):
    """A further attempt, where it waits or is due: a record of a retry topic (short name)."""

    topic: str
    partition: int
    offset: int
    attempt: int = 2
    not_before_us: int = 0


class Outcome(_OfRun, frozen=True, tag="outcome"):
    """How an attempt began or ended: started, succeeded, failed, timed_out, lost, cancelled."""

    how: str
    attempt: int
    worker: str = ""
    started_us: int = 0
    finished_us: int | None = None


class Execution(_OfRun, frozen=True, tag="execution"):
    """A call that the target got."""

    at_us: int
    attempt: int
    token: int


class Row(_OfRun, frozen=True, tag="row"):
    """A row of job_runs."""

    attempt: int
    outcome: str
    reason: str | None = None
    first_us: int | None = None
    count: int = 1
    token: int = 0


class DeadLetter(_OfRun, frozen=True, tag="dead_letter"):
    """An item that was set aside."""

    reason: str
    attempt: int = 0
    token: int = 0


class Fault(AnyEvent, frozen=True, tag="fault"):
    """One fault, from the first disturbance until all was put right again."""

    name: str
    target: str
    began_us: int
    ended_us: int
    hit: bool
    """Whether it was seen to have happened: the process died, the connection broke, the slot was gone."""
    detail: str = ""


class Process(AnyEvent, frozen=True, tag="process"):
    """A process of the product began or ended; ``why``: started, killed, stopped, died."""

    at_us: int
    node: str
    why: str


class Stuck(AnyEvent, frozen=True, tag="stuck"):
    """The system did not come back by itself in time; the run ends there."""

    at_us: int
    what: str


class Leader(AnyEvent, frozen=True, tag="leader"):
    """Who led, as etcd said when it was asked."""

    at_us: int
    node: str
    token: int


class Figure(AnyEvent, frozen=True, tag="figure"):
    """A measurement of the run itself: memory, files, what a page said."""

    at_us: int
    name: str
    value: float


class Window(AnyEvent, frozen=True, tag="window"):
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
