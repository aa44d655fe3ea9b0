"""What a batch of outcomes tells of attempts and jobs."""

from __future__ import annotations

from cronstream.clock import SECOND
from cronstream.records import Item, Kind
from streams.history import rows_of
from streams.news import News
from tests.unit.streams.making import NOON, cancel, outcome, outcomes, skipped


def news(*records: list[Item]) -> News:
    heard = News()
    for items in records:
        batch = outcomes(items)
        heard.add(batch, rows_of(batch)[0])
    return heard


def test_an_attempt_that_begins_and_ends_within_a_batch_leaves_no_trace() -> None:
    heard = news([outcome(Kind.STARTED, 1), outcome(Kind.STARTED, 2)], [outcome(Kind.SUCCEEDED, 1)])
    assert [start.job_id for start in heard.starts.values()] == [2]
    assert heard.ends == set()


def test_an_end_without_its_start_takes_out_what_an_earlier_batch_began() -> None:
    heard = news([outcome(Kind.FAILED, 1), outcome(Kind.LOST, 2, attempt=3)])
    assert [(attempt[0], attempt[3]) for attempt in sorted(heard.ends)] == [(1, 1), (2, 3)]


def test_a_start_that_is_told_again_after_its_end_begins_nothing() -> None:
    heard = news([outcome(Kind.SUCCEEDED, 1)], [outcome(Kind.STARTED, 1), outcome(Kind.STARTED, 1, attempt=2)])
    assert [start.attempt for start in heard.starts.values()] == [2]


def test_the_last_row_that_was_heard_of_counts_whatever_its_scheduled_time() -> None:
    heard = news([outcome(Kind.SUCCEEDED, 1, NOON + SECOND)], [outcome(Kind.FAILED, 1, NOON, error="no")])
    (job,) = heard.jobs()
    assert (job.last_outcome, job.last_error, job.deleted) == ("failed", "no", False)


def test_a_job_that_only_began_has_no_last_row() -> None:
    (job,) = news([outcome(Kind.STARTED, 1)]).jobs()
    assert (job.tenant, job.name, job.last_outcome) == ("acme", "report", None)


def test_skips_are_the_last_row_and_end_no_attempt() -> None:
    heard = news([skipped(1)])
    assert heard.ends == set()
    assert [job.last_error for job in heard.jobs()] == ["misfire"]


def test_deleted_jobs_are_told_with_their_rows_or_alone() -> None:
    heard = news([outcome(Kind.SUCCEEDED, 2), cancel(1), cancel(2)])
    told = [(job.job_id, job.name, job.last_outcome, job.deleted) for job in heard.jobs()]
    assert told == [(2, "report", "succeeded", True), (1, "report", None, True)]


def test_what_cannot_be_read_tells_nothing() -> None:
    heard = news([Item(Kind.STARTED, 1, NOON, body=b"nonsense"), Item(Kind.STARTED, 1, 2**62)])
    assert (heard.starts, list(heard.jobs())) == ({}, [])
