"""What outcomes tell of attempts and jobs, gathered over a batch for ``cronstream.job_status``. Pure.

An attempt that begins and ends within a batch leaves no trace but its row; only those that
straddle a batch are written to ``running_attempts`` and taken out again.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from cronstream.bodies import PoisonItem, deleted_of, report_of
from cronstream.clock import to_datetime
from cronstream.records import Batch, Item, Kind
from streams.history import Row, clean

Attempt = tuple[int, datetime, int, int]
"""job_id, scheduled_time, request_id, attempt."""


class Start(NamedTuple):
    """A row of ``running_attempts``, in the order of its columns."""

    job_id: int
    scheduled_time: datetime
    request_id: int
    attempt: int
    tenant: str
    name: str
    started_at: datetime
    worker: str


class JobNews(NamedTuple):
    """The newest of a job, in the order of the columns of ``staged_jobs``: its last row, if it has any."""

    job_id: int
    tenant: str
    name: str
    last_run: datetime | None = None
    last_request_id: int | None = None
    last_attempt: int | None = None
    last_outcome: str | None = None
    last_finished_at: datetime | None = None
    last_error: str | None = None
    """Or the reason why it did not run."""
    deleted: bool = False


class News:
    """Gathers records in the order of their offsets."""

    def __init__(self) -> None:
        self.starts: dict[Attempt, Start] = {}
        """Attempts that began and have not ended since."""
        self._ended: set[Attempt] = set()
        self._begun_here: set[Attempt] = set()
        self._named: dict[int, tuple[str, str]] = {}
        self._last: dict[int, Row] = {}
        self._deleted: set[int] = set()

    def add(self, batch: Batch, rows: list[Row]) -> None:
        """A record and the rows it is. Items that cannot be read are left to whoever made the rows."""
        for index in (batch.kind == Kind.STARTED).nonzero()[0].tolist():
            self._begin(batch.item(index))
        for row in rows:
            self._named[row.job_id] = (row.tenant, row.name)
            self._last[row.job_id] = row
            if row.attempt:
                attempt = row[:4]
                self._ended.add(attempt)
                self.starts.pop(attempt, None)
        for index in (batch.kind == Kind.CANCEL).nonzero()[0].tolist():
            self._delete(batch.item(index))

    @property
    def ends(self) -> set[Attempt]:
        """Attempts that ended, and began in an earlier batch if they ever did."""
        return self._ended - self._begun_here

    def jobs(self) -> Iterator[JobNews]:
        """Every job that anything was heard of."""
        for job_id, (tenant, name) in self._named.items():
            deleted = job_id in self._deleted
            last = self._last.get(job_id)
            if last is None:
                yield JobNews(job_id, tenant, name, deleted=deleted)
            else:
                error = last.error or last.reason
                yield JobNews(job_id, tenant, name, *last[1:4], last.outcome, last.finished_at, error, deleted)

    def _delete(self, item: Item) -> None:
        try:
            whose = deleted_of(item.body)
        except PoisonItem:
            return
        self._named[item.job_id] = (clean(whose.tenant), clean(whose.name))
        self._deleted.add(item.job_id)

    def _begin(self, item: Item) -> None:
        try:
            report = report_of(item.body)
            attempt = (item.job_id, to_datetime(item.scheduled_us), item.request_id, item.attempt)
            start = Start(
                *attempt, clean(report.tenant), clean(report.name), to_datetime(report.started_at), clean(report.worker)
            )
        except (PoisonItem, OverflowError):
            return
        if attempt not in self._ended:
            self.starts[attempt] = start
            self._begun_here.add(attempt)
            self._named[item.job_id] = (start.tenant, start.name)
