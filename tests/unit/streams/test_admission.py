"""Which items of a record become attempts."""

from __future__ import annotations

from cronstream.clock import MINUTE, SECOND
from cronstream.records import Batch, Item, Kind, Source
from streams.admission import Admission, admit, admit_retries
from streams.window import Window
from tests.unit.streams.making import NOON, at, cancel, run, runs, skip, triggers

DUE = "cronstream.retry.due"


def take(window: Window, batch: Batch, offset: int) -> Admission:
    admission = admit(window, batch, at(offset))
    window.add(admission.row, batch.published_at)
    return admission


def new_window() -> Window:
    return Window(10 * MINUTE)


def test_runs_become_attempts_and_say_where_they_come_from() -> None:
    batch = triggers([run(2), run(1), run(3, NOON + SECOND)], token=9, published_at=NOON + 5)
    admission = take(new_window(), batch, 7)
    assert admission.attempts is not None
    assert list(admission.attempts.items()) == list(batch.items())
    assert admission.attempts.source == at(7)
    assert (admission.attempts.token, admission.attempts.published_at) == (9, NOON + 5)
    assert admission.outcomes is admission.refused is admission.strange is None


def test_nothing_is_copied_when_nothing_is_dropped() -> None:
    batch = triggers([run(1), run(2)])
    admission = take(new_window(), batch, 0)
    assert admission.attempts is not None
    assert admission.attempts.bodies is batch.bodies


def test_a_run_published_twice_is_admitted_once() -> None:
    window = new_window()
    take(window, triggers([run(1), run(2)]), 0)
    admission = take(window, triggers([run(2), run(3), run(3)]), 1)
    assert runs(admission.attempts) == [(3, NOON, 0, 1)]
    assert admission.duplicates == 2


def test_another_request_attempt_or_instant_is_another_run() -> None:
    window = new_window()
    take(window, triggers([run(1)]), 0)
    others = [run(1, request_id=5), run(1, attempt=2), run(1, NOON + 1)]
    assert len(runs(take(window, triggers(others), 1).attempts)) == 3


def test_an_old_leaders_items_are_refused_not_dropped() -> None:
    window = new_window()
    take(window, triggers([run(1)], token=8), 0)
    admission = take(window, triggers([run(2), run(3, request_id=4), skip(5)], token=7), 1)
    assert runs(admission.attempts) == [(3, NOON, 4, 1)]
    assert admission.refused is not None
    assert [item.job_id for item in admission.refused.items()] == [2, 5]
    assert admission.outcomes is None


def test_a_token_that_was_newer_only_later_refuses_nothing() -> None:
    window = new_window()
    take(window, triggers([run(1)], token=7), 0)
    take(window, triggers([run(2)], token=8), 2)
    assert runs(admit(window, triggers([run(3)], token=7), at(1)).attempts) == [(3, NOON, 0, 1)]


def test_a_stale_leader_is_refused_however_long_the_new_one_was_silent() -> None:
    window = new_window()
    take(window, triggers([run(1)], token=8), 0)
    for offset in range(1, 30):
        take(window, triggers([run(offset)], token=8, published_at=NOON + offset * MINUTE), offset)
    assert runs(take(window, triggers([run(99)], token=7), 30).attempts) == []


def test_a_record_that_comes_again_gets_the_same_decision() -> None:
    window = new_window()
    first = triggers([run(1), run(2)])
    second = triggers([run(2), run(3)])
    take(window, first, 0)
    before = take(window, second, 1)
    take(window, triggers([run(3), run(4)], token=5), 2)
    again = take(window, second, 1)
    assert again.again
    assert again.row == before.row
    assert again.attempts is not None
    assert before.attempts is not None
    assert again.attempts.encode() == before.attempts.encode()
    refused = triggers([run(9)], token=2)
    take(window, refused, 3)
    assert take(window, refused, 3).refused is not None


def test_age_refuses_nothing() -> None:
    window = new_window()
    take(window, triggers([run(1)], published_at=NOON), 0)
    ancient = triggers([run(2, NOON - 10**12)], published_at=NOON - 10**12)
    assert len(runs(take(window, ancient, 1).attempts)) == 1


def test_the_window_ends_ten_minutes_after_admission() -> None:
    window = new_window()
    take(window, triggers([run(1)]), 0)
    for minute in range(1, 11):
        again = triggers([run(1)], published_at=NOON + minute * MINUTE)
        assert take(window, again, minute).attempts is None
    assert take(window, triggers([run(1)], published_at=NOON + 10 * MINUTE + 1), 11).attempts is None
    assert take(window, triggers([run(1)], published_at=NOON + 10 * MINUTE + 2), 12).attempts is not None


def test_skips_and_cancels_become_outcomes() -> None:
    admission = take(new_window(), triggers([skip(1, count=3), run(2), cancel(4)], token=6), 5)
    assert admission.outcomes is not None
    assert [(item.kind, item.job_id, item.attempt) for item in admission.outcomes.items()] == [
        (Kind.SKIPPED, 1, 0),
        (Kind.CANCEL, 4, 0),
    ]
    assert admission.outcomes.source is not None
    assert (admission.outcomes.source.offset, admission.outcomes.source.part) == (5, 1)
    assert runs(admission.attempts) == [(2, NOON, 0, 1)]


def test_a_kind_of_the_future_is_set_aside_and_the_rest_goes_on() -> None:
    batch = triggers([run(1), run(2)])
    kinds = batch.kind.copy()
    kinds[0] = 99
    strange = Batch(
        batch.token,
        batch.published_at,
        None,
        kinds,
        batch.job_id,
        batch.scheduled,
        batch.request_id,
        batch.attempt,
        batch.ends,
        batch.bodies,
    )
    admission = take(new_window(), strange, 0)
    assert runs(admission.attempts) == [(2, NOON, 0, 1)]
    assert admission.strange is not None
    assert admission.strange.job_id.tolist() == [1]


def test_an_empty_batch_is_remembered_and_does_nothing() -> None:
    admission = take(new_window(), triggers([], token=3), 0)
    assert admission.attempts is None
    assert admission.row.token == 3


def test_an_outcome_among_triggers_is_strange() -> None:
    item = Item(Kind.SUCCEEDED, 1, NOON)
    assert take(new_window(), triggers([item]), 0).strange is not None


def test_runs_that_must_not_overlap_are_admitted_once_and_handed_on() -> None:
    window = new_window()
    batch = triggers([run(1), run(2, kind=Kind.RUN_QUEUED), run(3, kind=Kind.RUN_ALONE), skip(4)])
    admission = take(window, batch, 0)
    assert runs(admission.attempts) == [(1, NOON, 0, 1)]
    assert admission.outcomes is not None
    assert [(item.kind, item.job_id, item.attempt) for item in admission.outcomes.items()] == [
        (Kind.RUN_QUEUED, 2, 1),
        (Kind.RUN_ALONE, 3, 1),
        (Kind.SKIPPED, 4, 0),
    ]
    assert take(window, triggers([run(2, kind=Kind.RUN_QUEUED)]), 1).outcomes is None
    again = take(window, batch, 0)
    assert (runs(again.attempts), runs(again.outcomes)) == (runs(admission.attempts), runs(admission.outcomes))


def test_a_retry_is_admitted_once_and_never_refused_for_its_token() -> None:
    window = new_window()
    take(window, triggers([run(1)], token=9), 0)
    retries = triggers([run(1, attempt=2), run(2, attempt=2)], token=3)
    admission = admit_retries(window, retries, Source(DUE, 0, 0), lambda job_id: job_id == 2)
    window.add(admission.row, 0)
    assert runs(admission.attempts) == [(1, NOON, 0, 2)]
    assert runs(admission.outcomes) == [(2, NOON, 0, 2)]
    assert admission.outcomes is not None
    assert admission.outcomes.item(0).kind is Kind.CANCELLED
    again = admit_retries(window, retries, Source(DUE, 0, 0), lambda _: False)
    assert (again.again, runs(again.attempts), runs(again.outcomes)) == (True, [(1, NOON, 0, 2)], [(2, NOON, 0, 2)])
    other = admit_retries(window, retries, Source(DUE, 0, 1), lambda _: False)
    assert (other.attempts, other.outcomes, other.duplicates) == (None, None, 2)


def test_rows_of_triggers_and_retries_are_told_apart() -> None:
    window = new_window()
    take(window, triggers([run(1)]), 5)
    retry = admit_retries(window, triggers([run(1, attempt=2)]), Source(DUE, 0, 5), lambda _: False)
    window.add(retry.row, 0)
    assert retry.row.key != admit(window, triggers([run(1)]), at(5)).row.key
    assert runs(admit(window, triggers([run(1)]), at(5)).attempts) == [(1, NOON, 0, 1)]
