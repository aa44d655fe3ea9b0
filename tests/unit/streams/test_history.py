"""Outcomes as rows of history."""

from __future__ import annotations

from datetime import UTC, datetime

from cronstream.bodies import Report, Skip, pack
from cronstream.records import Batch, Item, Kind
from streams.history import rows_of
from tests.unit.streams.making import NOON, cancel, outcome, outcomes, skipped


def test_ends_are_rows_and_starts_are_not() -> None:
    items = [outcome(Kind.STARTED, 1), outcome(Kind.TIMED_OUT, 1, error="after 3 s"), cancel(4), outcome(Kind.LOST, 2)]
    rows, poison = rows_of(outcomes(items, token=8))
    assert poison == []
    assert [(row.job_id, row.outcome, row.error, row.fencing_token) for row in rows] == [
        (1, "timed_out", "after 3 s", 8),
        (2, "lost", None, 8),
    ]
    assert rows[0].started_at is not None
    assert rows[0].started_at.tzinfo is UTC


def test_a_skip_is_one_row_for_all_it_stands_for() -> None:
    body = pack(Skip("acme", "report", "misfire: skip", NOON - 60_000_000, NOON, 7))
    (row,), _ = rows_of(outcomes([Item(Kind.SKIPPED, 1, NOON, 0, 0, body)]))
    assert (row.outcome, row.attempt, row.reason, row.run_count) == ("skipped", 0, "misfire: skip", 7)
    assert row.first_time is not None
    assert row.first_time < row.scheduled_time


def test_nul_is_cleaned() -> None:
    report = Report("acme", "re\x00port", "w", NOON, NOON, NOON, "a\x00b", "\x00")
    (row,), _ = rows_of(outcomes([Item(Kind.FAILED, 1, NOON, body=pack(report))]))
    assert (row.name, row.error, row.output) == ("re\ufffdport", "a\ufffdb", "\ufffd")


def test_what_cannot_be_read_is_named_and_the_rest_goes_on() -> None:
    items = [
        Item(Kind.FAILED, 1, NOON, body=b"nonsense"),
        outcome(Kind.SUCCEEDED, 2),
        Item(Kind.RUN, 3, NOON),
        outcome(Kind.SUCCEEDED, 4, 2**62),
        skipped(5),
    ]
    rows, poison = rows_of(outcomes(items))
    assert [row.job_id for row in rows] == [2, 5]
    assert [index for index, _ in poison] == [0, 2, 3]


def test_the_day_is_utc() -> None:
    row = rows_of(outcomes([outcome(Kind.SUCCEEDED, 1, 1_767_225_599_999_999)]))[0][0]
    assert row.day == datetime(2025, 12, 31, tzinfo=UTC).date()


def test_an_empty_record_has_no_rows() -> None:
    assert rows_of(Batch.of([], token=1, published_at=NOON)) == ([], [])
