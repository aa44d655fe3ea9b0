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
