"""One attempt, as a handler sees it, and what a handler says of it.

A handler is one class with ``run``. It is called inside a task that has a
deadline: when the task is cancelled, whatever the handler started must be dead
before ``CancelledError`` leaves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import msgspec

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
    waits_for: str | None = None
    """What it waits for before it can begin; its deadline's error says so."""

    @property
    def idempotency_key(self) -> str:
        """Equal for all attempts of the run: how a target tells that it has seen it."""
        return records.idempotency_key(self.job_id, self.scheduled_us, self.request_id)

    @property
    def scheduled_time(self) -> str:
        """The nominal instant, ISO 8601, UTC."""
        return clock.iso(self.scheduled_us)

    @property
    def identity(self) -> dict[str, str | int]:
        """Which run this is, and which try: what every target is told, under names of its kind."""
        return {
            "idempotency_key": self.idempotency_key,
            "fencing_token": self.token,
            "scheduled_time": self.scheduled_time,
            "attempt": self.attempt,
            "job_id": self.job_id,
            "job": self.work.name,
            "tenant": self.work.tenant,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """How a handler ended: SUCCEEDED or FAILED (a deadline is not the handler's to report)."""

    kind: Kind
    error: str | None = None
    output: str | None = None
    final: bool = False
    """A further try is of no use."""
    retry_after_us: int | None = None
    """The instant before which the target wants no further try."""


def succeeded(output: str | None = None) -> Result:
    """The handler did what was asked."""
    return Result(Kind.SUCCEEDED, None, output)


def failed(error: str, output: str | None = None, *, final: bool = False, retry_after_us: int | None = None) -> Result:
    """The target said no, or could not be asked."""
    return Result(Kind.FAILED, error, output, final, retry_after_us)


def refused(error: str) -> Result:
    """What was asked cannot be done, or may not be done here, whenever it is tried."""
    return failed(error, final=True)


class BadPayload(ValueError):
    """A payload that its handler cannot read."""


Payload = TypeVar("Payload", bound=msgspec.Struct)


class PayloadReader(Generic[Payload]):
    """Reads the payloads of one handler."""

    def __init__(self, kind: type[Payload], what: str) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._what = what

    def read(self, attempt: Attempt) -> Payload:
        """Raises BadPayload, which says what is wrong and where."""
        try:
            return self._decoder.decode(attempt.work.payload or b"")
        except msgspec.MsgspecError as error:
            raise BadPayload(f"the payload is not {self._what}: {error}") from None


class Handler(Protocol):
    """Does one kind of work."""

    async def run(self, attempt: Attempt) -> Result:
        """Do it once. May raise: that is a failed attempt, and a final one for BadPayload."""

    async def close(self) -> None:
        """Give back what is held between attempts."""
