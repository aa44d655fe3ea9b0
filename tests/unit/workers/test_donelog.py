"""The done-log: run, done or lost."""

from __future__ import annotations

from cronstream.bodies import Report, pack
from cronstream.records import Batch, Item, Kind
from workers.donelog import DoneLog, Verdict, decide


def log(*items: Item) -> DoneLog:
    done = DoneLog()
    for item in items:
        done.note(Batch.of([item], token=1, published_at=0))
    return done


def item(kind: Kind, job: int, attempt: int = 1, body: bytes = b"") -> Item:
    return Item(kind, job, 1000, 0, attempt, body)


def test_verdicts() -> None:
    done = log(
        item(Kind.STARTED, 1),
        item(Kind.STARTED, 2),
        item(Kind.SUCCEEDED, 2),
        item(Kind.LOST, 3),
        item(Kind.STARTED, 4, attempt=1),
    )
    keys = [(1, 1000, 0, 1), (2, 1000, 0, 1), (3, 1000, 0, 1), (4, 1000, 0, 2), (5, 1000, 0, 1)]
    assert decide(keys, done) == [Verdict.LOST, Verdict.DONE, Verdict.DONE, Verdict.RUN, Verdict.RUN]


def test_an_end_counts_even_before_its_start() -> None:
    done = log(item(Kind.TIMED_OUT, 1), item(Kind.STARTED, 1))
    assert decide([(1, 1000, 0, 1)], done) == [Verdict.DONE]


def test_what_admission_says_is_no_end_of_an_attempt() -> None:
    assert decide([(1, 1000, 0, 1)], log(item(Kind.SKIPPED, 1))) == [Verdict.RUN]


def test_a_lost_attempt_keeps_its_worker_and_the_moment_it_was_started() -> None:
    report = pack(Report("t", "n", "w", 5, 77))
    assert log(item(Kind.STARTED, 1, body=report)).start((1, 1000, 0, 1)) == ("w", 77)
    assert log(item(Kind.STARTED, 1, body=b"?")).start((1, 1000, 0, 1)) == ("", 0)
