"""Outcomes as rows of ``cronstream.job_runs``. Pure.

An end is a row, a skip is a row; a start, a run that waits for its turn, or a job's deletion, is none.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import NamedTuple

from cronstream.bodies import PoisonItem, report_of, skip_of
from cronstream.clock import to_datetime
from cronstream.records import Batch, Item, Kind

OUTCOMES = {
    Kind.SUCCEEDED: "succeeded",
    Kind.FAILED: "failed",
    Kind.TIMED_OUT: "timed_out",
    Kind.LOST: "lost",
    Kind.SKIPPED: "skipped",
    Kind.CANCELLED: "cancelled",
}
_NOT_HISTORY = frozenset({Kind.STARTED, Kind.CANCEL, Kind.RUN_QUEUED, Kind.RUN_ALONE})


class Row(NamedTuple):
    """A row, in the order of its columns."""

    job_id: int
    scheduled_time: datetime
    request_id: int
    attempt: int
    tenant: str
    name: str
    outcome: str
    reason: str | None = None
    first_time: datetime | None = None
    run_count: int = 1
    published_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    worker: str | None = None
    fencing_token: int | None = None
    error: str | None = None
    output: str | None = None

    @property
    def day(self) -> date:
        """The UTC day whose partition holds the row."""
        return self.scheduled_time.astimezone(UTC).date()


def rows_of(batch: Batch) -> tuple[list[Row], list[tuple[int, str]]]:
    """The rows of a record, and the items that cannot be read, by index, with the reason."""
    rows: list[Row] = []
    poison: list[tuple[int, str]] = []
    for index, item in enumerate(batch.each()):
        try:
            if isinstance(item, PoisonItem):
                raise item
            if item.kind not in _NOT_HISTORY:
                rows.append(_row(batch, item))
        except (PoisonItem, OverflowError) as error:
            poison.append((index, str(error)))
    return rows, poison


def _row(batch: Batch, item: Item) -> Row:
    outcome = OUTCOMES.get(item.kind)
    if outcome is None:
        raise PoisonItem(f"{item.kind.name} is no outcome")
    scheduled = to_datetime(item.scheduled_us)
    if item.kind is Kind.SKIPPED:
        skip = skip_of(item.body)
        return Row(
            item.job_id,
            scheduled,
            item.request_id,
            0,
            clean(skip.tenant),
            clean(skip.name),
            outcome,
            reason=clean(skip.reason),
            first_time=to_datetime(skip.first),
            run_count=skip.count,
            published_at=to_datetime(batch.published_at),
            fencing_token=batch.token,
        )
    report = report_of(item.body)
    return Row(
        item.job_id,
        scheduled,
        item.request_id,
        item.attempt,
        clean(report.tenant),
        clean(report.name),
        outcome,
        published_at=to_datetime(report.published_at),
        started_at=to_datetime(report.started_at),
        finished_at=_when(report.finished_at),
        worker=clean(report.worker),
        fencing_token=batch.token,
        error=_cleaned(report.error),
        output=_cleaned(report.output),
    )


def _when(instant_us: int | None) -> datetime | None:
    return None if instant_us is None else to_datetime(instant_us)


def clean(text: str) -> str:
    """Postgres holds no NUL; it is shown as U+FFFD."""
    return text.replace("\x00", "\ufffd")


def _cleaned(text: str | None) -> str | None:
    return None if text is None else clean(text)
