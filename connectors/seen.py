"""What was seen of capture: values, without the means of looking."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Status:
    """How a connector and its task are: RUNNING, FAILED, PAUSED, STOPPED, UNASSIGNED, RESTARTING."""

    connector: str
    task: str | None
    """None: there is no task (yet)."""
    trace: str = ""
    """Of whichever failed."""

    @property
    def running(self) -> bool:
        return self.connector == "RUNNING" and self.task == "RUNNING"

    @property
    def failed(self) -> bool:
        return "FAILED" in (self.connector, self.task)

    @property
    def reason(self) -> str:
        """The lines of the trace that say why, without the stack."""
        lines = [line.strip() for line in self.trace.splitlines()]
        return " / ".join(line for line in lines if line and not line.startswith(("at ", "...")))[:1000]


@dataclass(frozen=True, slots=True)
class Slot:
    """The replication slot."""

    active: bool
    wal_status: str
    """reserved, extended: well. unreserved: about to be given up. lost: given up."""
    behind_bytes: int
    confirmed: int = 0
    """The position up to which Connect has confirmed to have delivered, in bytes of WAL."""
    decoding: bool = False
    """Its process in Postgres is at work: a long transaction takes it a minute, in which it sends nothing."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at everything; what could not be asked is told apart from what is not there."""

    connect_answers: bool
    status: Status | None
    """None: there is no such connector (if Connect answers)."""
    postgres_answers: bool
    slot: Slot | None
    """None: there is no such slot (if Postgres answers)."""
    heartbeat_age_seconds: float | None
    """None: none was delivered yet, or the database's clock is not known."""
    still_seconds: float | None = None
    """Since anything moved: a row on the topic, the slot's position, its process. None: not yet, or not known."""


class Progress:
    """When capture was last seen to move. One per process that watches."""

    def __init__(self) -> None:
        self._confirmed: int | None = None
        self._moved_us: int | None = None

    def moved_us(self, delivered: int, slot: Slot | None, now_us: int) -> int | None:
        """After a look that found so many new rows, and the slot so. None: it was not seen to move yet."""
        confirmed = None if slot is None else slot.confirmed
        forward = self._confirmed is not None and confirmed is not None and confirmed > self._confirmed
        if delivered or forward or (slot is not None and slot.decoding):
            self._moved_us = now_us
        self._confirmed = confirmed
        return self._moved_us
