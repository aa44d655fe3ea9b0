"""What is known of a job's runs: a row of the status table, and how it is shown."""

from __future__ import annotations

from typing import Any

import msgspec

from cronstream.clock import iso
from cronstream.records import Kind
from streams.overlap import Overlap

KEPT_RUNS = 10
"""How many runs a job's status keeps; history has them all."""

COUNTED = (Kind.SUCCEEDED, Kind.FAILED, Kind.TIMED_OUT, Kind.LOST, Kind.SKIPPED, Kind.CANCELLED)
_STATE: dict[int, str] = {
    Kind.STARTED: "running",
    Kind.SUCCEEDED: "succeeded",
    Kind.FAILED: "failed",
    Kind.TIMED_OUT: "timed_out",
    Kind.LOST: "lost",
    Kind.SKIPPED: "skipped",
    Kind.CANCELLED: "cancelled",
}
_STARTED = int(Kind.STARTED)
STATES = (*_STATE.values(), "idle", "deleted")
"""Every state of a job."""


class RunStatus(msgspec.Struct, array_like=True, frozen=True):
    """The latest attempt of a run. Instants in microseconds, UTC."""

    scheduled: int
    request_id: int
    attempt: int
    kind: int
    started_at: int | None = None
    finished_at: int | None = None
    worker: str | None = None
    note: str | None = None
    """The error, or why the run was skipped."""
    offset: int = -1
    """The outcomes offset that said so."""


class JobStatus(msgspec.Struct, array_like=True, frozen=True):
    """A job: its last runs, that which was heard of last at the end, and how many ended how."""

    tenant: str = ""
    name: str = ""
    offset: int = -1
    """The outcomes offset of the last record that changed this; one at or below it changes nothing."""
    deleted: bool = False
    counts: tuple[int, ...] = (0,) * len(COUNTED)
    runs: tuple[RunStatus, ...] = ()
    overlap: Overlap | None = None
    """Whose turn it is; only of jobs whose runs must not overlap."""
    overlap_before: Overlap | None = None
    """The same before the record at ``offset``."""
    span: int = 0
    """How far below ``offset`` the step began for this job: from there on records may be read again."""

    @property
    def running(self) -> int:
        """How many of the runs kept are under way."""
        return [run.kind for run in self.runs].count(_STARTED)

    def encode(self) -> bytes:
        """The row's value in the table."""
        return _encoder.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> JobStatus:
        """A row as stored."""
        return _decoder.decode(value)


def key_of(job_id: int) -> bytes:
    """A job's key in the table."""
    return job_id.to_bytes(8, "big", signed=True)


def job_of(key: bytes) -> int:
    """The job whose key in the table it is."""
    return int.from_bytes(key, "big", signed=True)


def state_of(status: JobStatus) -> str:
    """One word for a job: what runs, or how the run that was heard of last stands."""
    if status.deleted:
        return "deleted"
    if status.running:
        return "running"
    return _STATE[status.runs[-1].kind] if status.runs else "idle"


def shown(job_id: int, status: JobStatus) -> dict[str, Any]:
    """The JSON that ``GET /jobs/{job_id}`` answers with."""
    runs = sorted(status.runs, key=lambda run: (run.scheduled, run.request_id), reverse=True)
    return {
        "job_id": job_id,
        "tenant": status.tenant,
        "name": status.name,
        "state": state_of(status),
        "running": status.running,
        "waiting": status.overlap.waiting if status.overlap else 0,
        "counts": {_STATE[kind]: count for kind, count in zip(COUNTED, status.counts, strict=True)},
        "runs": [shown_run(run) for run in runs],
    }


def shown_run(run: RunStatus) -> dict[str, Any]:
    """A run as JSON."""
    return {
        "scheduled_time": iso(run.scheduled),
        "request_id": run.request_id,
        "attempt": run.attempt,
        "state": _STATE[run.kind],
        "started_at": None if run.started_at is None else iso(run.started_at),
        "finished_at": None if run.finished_at is None else iso(run.finished_at),
        "worker": run.worker,
        "error" if run.kind != Kind.SKIPPED else "reason": run.note,
    }


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(JobStatus)
