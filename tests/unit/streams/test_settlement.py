"""What outcomes change in a job's status, whatever order they come in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cronstream.clock import MINUTE, SECOND
from cronstream.records import Item, Kind
from streams.settlement import Following, Step, Tables
from streams.status import COUNTED, KEPT_RUNS, JobStatus, shown
from tests.unit.streams.making import NOON, Settled, cancel, outcome, outcomes, run, settle, skipped


class Jobs:
    """A status table."""

    def __init__(self) -> None:
        self.rows: dict[int, JobStatus] = {}
        self.tables = Tables(self.rows.get, {}.get, 100)

    def take(self, items: Iterable[Item], offset: int) -> Settled:
        settlement = settle(self.tables, outcomes(items), offset)
        self.store(settlement.statuses)
        return settlement

    def take_together(self, records: Mapping[int, Iterable[Item]]) -> list[Following]:
        step = Step(self.tables)
        following = [step.settle(outcomes(items), offset) for offset, items in records.items()]
        self.store(step.end().statuses)
        return following

    def store(self, statuses: Mapping[int, JobStatus]) -> None:
        self.rows |= {job: JobStatus.decode(status.encode()) for job, status in statuses.items()}

    def shown(self, job_id: int) -> dict[str, object]:
        return shown(job_id, self.rows[job_id])


def test_a_run_starts_and_succeeds() -> None:
    jobs = Jobs()
    jobs.take([outcome(Kind.STARTED, 1)], 0)
    assert jobs.shown(1)["state"] == "running"
    settlement = jobs.take([outcome(Kind.SUCCEEDED, 1)], 1)
    assert settlement.ended == {Kind.SUCCEEDED: 1}
    assert settlement.running == -1
    shown = jobs.shown(1)
    assert (shown["tenant"], shown["name"], shown["state"], shown["running"]) == ("acme", "report", "succeeded", 0)
    assert jobs.rows[1].runs[0].started_at == NOON + SECOND


def test_a_failed_run_is_recorded_with_its_error() -> None:
    jobs = Jobs()
    jobs.take([outcome(Kind.FAILED, 1, error="exit 3" * 1000)], 0)
    assert jobs.shown(1)["counts"] == {**dict.fromkeys(jobs.shown(1)["counts"], 0), "failed": 1}
    note = jobs.rows[1].runs[0].note
    assert note is not None
    assert note.startswith("exit 3")
    assert len(note) <= 300


def test_an_outcome_that_comes_twice_counts_once() -> None:
    jobs = Jobs()
    jobs.take([outcome(Kind.SUCCEEDED, 1), outcome(Kind.SUCCEEDED, 1)], 0)
    jobs.take([outcome(Kind.SUCCEEDED, 1)], 1)
    jobs.take([outcome(Kind.LOST, 1)], 2)
    assert jobs.rows[1].counts == (1, 0, 0, 0, 0, 0)


def test_a_record_that_is_read_again_changes_nothing() -> None:
    jobs = Jobs()
    jobs.take([outcome(Kind.SUCCEEDED, 1)], 5)
    before = dict(jobs.rows)
    assert jobs.take([outcome(Kind.SUCCEEDED, 1), outcome(Kind.FAILED, 1, NOON + MINUTE)], 5).statuses == {}
    assert jobs.rows == before


def test_a_start_after_the_end_changes_no_state() -> None:
    jobs = Jobs()
    jobs.take([outcome(Kind.SUCCEEDED, 1)], 0)
    jobs.take([outcome(Kind.STARTED, 1)], 1)
    assert jobs.shown(1)["state"] == "succeeded"


def test_a_later_attempt_supersedes_and_an_earlier_one_is_ignored() -> None:
    jobs = Jobs()
    jobs.take([outcome(Kind.FAILED, 1, attempt=1)], 0)
    jobs.take([outcome(Kind.STARTED, 1, attempt=2)], 1)
    assert jobs.shown(1)["state"] == "running"
    jobs.take([outcome(Kind.SUCCEEDED, 1, attempt=2)], 2)
    jobs.take([outcome(Kind.STARTED, 1, attempt=1)], 3)
    assert jobs.rows[1].runs[0].kind == Kind.SUCCEEDED
    assert jobs.rows[1].counts == (1, 1, 0, 0, 0, 0)


def test_skips_count_the_times_they_stand_for() -> None:
    jobs = Jobs()
    jobs.take([skipped(1, count=40)], 0)
    jobs.take([skipped(1, count=40)], 1)
    assert jobs.rows[1].counts[COUNTED.index(Kind.SKIPPED)] == 40
    assert jobs.shown(1)["state"] == "skipped"


def test_a_deleted_job_says_so() -> None:
    jobs = Jobs()
    jobs.take([outcome(Kind.SUCCEEDED, 1)], 0)
    jobs.take([cancel(1)], 1)
    assert jobs.shown(1)["state"] == "deleted"


def test_a_job_that_is_deleted_before_it_ran_has_its_name_and_stays_deleted() -> None:
    jobs = Jobs()
    jobs.take([cancel(1)], 0)
    shown = jobs.shown(1)
    assert (shown["tenant"], shown["name"], shown["state"]) == ("acme", "report", "deleted")
    jobs.take([outcome(Kind.SUCCEEDED, 1)], 1)
    assert jobs.shown(1)["state"] == "deleted"


def test_the_state_is_that_of_the_run_that_was_heard_of_last_whenever_it_began() -> None:
    jobs = Jobs()
    jobs.take([outcome(Kind.STARTED, 1)], 0)
    jobs.take([skipped(1, NOON + MINUTE)], 1)
    jobs.take([outcome(Kind.FAILED, 1)], 2)
    assert jobs.shown(1)["state"] == "failed"


def test_the_oldest_ended_run_makes_room() -> None:
    jobs = Jobs()
    jobs.take([outcome(Kind.STARTED, 1)], 0)
    for minute in range(1, 30):
        jobs.take([outcome(Kind.SUCCEEDED, 1, NOON + minute * MINUTE)], minute)
    kept = jobs.rows[1].runs
    assert len(kept) == KEPT_RUNS
    assert kept[0].kind == Kind.STARTED
    assert kept[-1].scheduled == NOON + 29 * MINUTE


def test_poison_is_named_and_the_rest_goes_on() -> None:
    bad = Item(Kind.SUCCEEDED, 1, NOON, body=b"\xc1")
    wrong = Item(Kind.RUN, 3, NOON)
    settlement = Jobs().take([bad, outcome(Kind.SUCCEEDED, 2), wrong], 0)
    assert [one.index for one in settlement.refused] == [0, 2]
    assert list(settlement.statuses) == [2]


def test_many_jobs_in_one_record_are_settled_together() -> None:
    settlement = Jobs().take([outcome(Kind.SUCCEEDED, job) for job in range(500)], 0)
    assert len(settlement.statuses) == 500


def test_records_of_a_step_see_those_before_them() -> None:
    together, apart = Jobs(), Jobs()
    records = {
        3: [outcome(Kind.STARTED, 1), outcome(Kind.STARTED, 2)],
        4: [outcome(Kind.SUCCEEDED, 1)],
        6: [outcome(Kind.LOST, 1), outcome(Kind.STARTED, 1, NOON + MINUTE)],
    }
    together.take_together(records)
    for offset, items in records.items():
        apart.take(items, offset)
    assert {job: together.shown(job) for job in (1, 2)} == {job: apart.shown(job) for job in (1, 2)}
    assert together.rows[1].offset == 6


def test_of_a_step_that_comes_again_every_record_is_followed_by_the_same() -> None:
    jobs = Jobs()
    records = {
        3: [outcome(Kind.FAILED, 1)],
        4: [outcome(Kind.FAILED, 1), outcome(Kind.FAILED, 1, NOON + MINUTE)],
        6: [outcome(Kind.SUCCEEDED, 1, NOON + 2 * MINUTE)],
    }
    first = jobs.take_together(records)
    assert [len(one.retries) for one in first] == [1, 1, 0]
    before = dict(jobs.rows)
    assert jobs.take_together(records) == first
    assert [jobs.take_together({offset: items}) for offset, items in records.items()] == [[one] for one in first]
    assert jobs.rows == before


def test_what_came_before_a_step_is_over() -> None:
    jobs = Jobs()
    failed = [outcome(Kind.FAILED, 1)]
    jobs.take(failed, 3)
    jobs.take_together({4: [outcome(Kind.STARTED, 1, NOON + MINUTE)], 5: [outcome(Kind.SUCCEEDED, 1, NOON + MINUTE)]})
    assert jobs.take(failed, 3).retries == []


def test_a_record_read_again_and_a_new_one_in_one_step_may_both_come_again() -> None:
    jobs = Jobs()
    failed = [outcome(Kind.FAILED, 1)]
    jobs.take(failed, 3)
    jobs.take_together({3: failed, 4: [outcome(Kind.STARTED, 1, NOON + MINUTE)]})
    assert len(jobs.take(failed, 3).retries) == 1


def test_a_job_that_takes_turns_is_in_one_record_of_a_step() -> None:
    jobs = Jobs()
    step = Step(jobs.tables)
    step.settle(outcomes([run(1, kind=Kind.RUN_QUEUED), outcome(Kind.STARTED, 2)]), 3)
    assert step.takes(outcomes([outcome(Kind.SUCCEEDED, 2)]))
    assert not step.takes(outcomes([outcome(Kind.SUCCEEDED, 2), outcome(Kind.SUCCEEDED, 1)]))
    jobs.store(step.end().statuses)
    step = Step(jobs.tables)
    step.settle(outcomes([outcome(Kind.STARTED, 1)]), 4)
    assert not step.takes(outcomes([outcome(Kind.SUCCEEDED, 1)]))
