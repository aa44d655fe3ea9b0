"""One attempt, as a handler sees it, and what a handler says of it.

A handler is one class with ``run``. It is called inside a task that has a
deadline: when the task is cancelled, whatever the handler started must be dead
before ``CancelledError`` leaves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cronstream import clock, records
from cronstream.bodies import Work
from cronstream.records import Kind


@dataclass(slots=True)
class Attempt:
    """What a handler needs to know, and pass on to its target."""

    work: Work
    job_id: int
    scheduled_us: int
    request_id: int
    attempt: int
    token: int
    deadline_us: int
    """When it will be stopped, by this machine's clock."""
    partial_output: str | None = None
    """A handler that is cancelled leaves here what its target had said so far."""

    @property
    def idempotency_key(self) -> str:
        """Equal for all attempts of the run: how a target tells that it has seen it."""
        return records.idempotency_key(self.job_id, self.scheduled_us, self.request_id)

    @property
    def scheduled_time(self) -> str:
        """The nominal instant, ISO 8601, UTC."""
        return clock.iso(self.scheduled_us)


@dataclass(frozen=True, slots=True)
class Result:
    """How a handler ended: SUCCEEDED or FAILED (a deadline is not the handler's to report)."""

    kind: Kind
    error: str | None = None
    output: str | None = None


def succeeded(output: str | None = None) -> Result:
    """The handler did what was asked."""
    return Result(Kind.SUCCEEDED, None, output)


def failed(error: str, output: str | None = None) -> Result:
    """The target said no, or could not be asked."""
    return Result(Kind.FAILED, error, output)


class Handler(Protocol):
    """Does one kind of work."""

    async def run(self, attempt: Attempt) -> Result:
        """Do it once. May raise: that is a failed attempt."""

    async def close(self) -> None:
        """Give back what is held between attempts."""
