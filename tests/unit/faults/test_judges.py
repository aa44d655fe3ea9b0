"""Each judge on small literal histories: the good one passes, one spoilt in one place is named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.faults.events import Attempt, Command, DeadLetter, Edit, Fault, Outcome, Process, Request, Row, Rule, Stuck
from tests.faults.history import History, Recorder
from tests.faults.judges import JUDGES, expected_of, judge_all
from tests.faults.judges.assumptions import assumptions
from tests.faults.judges.attempts_bounded import attempts_bounded
from tests.faults.judges.breach import Judge
from tests.faults.judges.edits_take_effect import edits_take_effect
from tests.faults.judges.in_order import in_order
from tests.faults.judges.never_early import never_early
from tests.faults.judges.no_overlap import no_overlap
from tests.faults.judges.no_run_lost import no_run_lost
from tests.faults.judges.no_stale_term import no_stale_term
from tests.faults.judges.one_run import one_run_per_scheduled_time
from tests.faults.judges.requests_run import requests_run
from tests.faults.judges.unknown import outcomes_known
from tests.unit.faults.small import EVERY_SECOND, S, Small, said, three_runs


@pytest.mark.parametrize("judge", JUDGES, ids=lambda judge: judge.__name__)
def test_a_good_history_breaks_nothing(judge: Judge) -> None:
    assert said(three_runs(), judge) == []


# ---- assumptions ---------------------------------------------------------------------------------


def test_a_run_without_executions_proves_nothing() -> None:
    small = three_runs()
    small.executions.clear()
    assert said(small, assumptions) == ["only 0 of 3 runs reached the target"]


def test_a_fault_that_did_not_hit_is_named() -> None:
    small = three_runs()
    small.faults.append(Fault("kill", "leader", S, 2 * S, hit=False, detail="there was none"))
    assert said(small, assumptions) == ["the fault kill of leader did not hit: there was none"]


def test_a_run_that_did_not_come_to_rest_proves_nothing() -> None:
    small = three_runs()
    small.settled = False
    assert len(said(small, assumptions)) == 1


def test_a_system_that_did_not_come_back_is_named() -> None:
    history = History([*three_runs().events(), Stuck(2 * S, "not within 120 s: back at work after kill leader")])
    assert [b.promise for b in assumptions(history, expected_of(history))] == ["Recovery"]


def test_an_empty_window_proves_nothing() -> None:
    assert "nothing was due in the window" in said(Small(until=0), assumptions)


# ---- NeverEarly ----------------------------------------------------------------------------------


def test_a_trigger_before_its_time_is_early() -> None:
    small = Small()
    small.run(2, published=1.9)
    assert said(small, never_early) == ["published 100000 us early"]


def test_a_call_before_its_time_is_early() -> None:
    small = Small()
    small.run(2, at=1.999)
    assert said(small, never_early) == ["ran 1000 us early"]


# ---- OneRunPerScheduledTime ----------------------------------------------------------------------


def test_a_second_emission_of_one_source_is_dropped_by_the_worker() -> None:
    small = three_runs()
    small.attempt(2 * S, 1, ("triggers", 0, 1, 0), 5, 3 * S)
    assert said(small, one_run_per_scheduled_time) == []


def test_a_run_admitted_from_two_records_is_doubled() -> None:
    small = three_runs()
    small.attempt(2 * S, 1, ("triggers", 0, 7, 0), 5, 3 * S)
    assert said(small, one_run_per_scheduled_time) == [
        "attempt 1 was admitted from [('triggers', 0, 1, 0), ('triggers', 0, 7, 0)]"
    ]


def twice(small: Small) -> Small:
    call = small.executions[1]
    small.executions.append(msgspec.structs.replace(call, at_us=call.at_us + 4 * S))
    return small


def test_an_attempt_that_ran_twice_is_doubled() -> None:
    assert said(twice(three_runs()), one_run_per_scheduled_time) == ["attempt 1 ran twice, 4.000 s apart"]


def test_an_attempt_may_run_twice_if_its_worker_died_with_it() -> None:
    small = twice(three_runs())
    small.processes.append(Process(3 * S, "worker-1", "killed"))
    assert said(small, one_run_per_scheduled_time) == []


def test_the_death_of_another_process_excuses_nothing() -> None:
    small = twice(three_runs())
    small.processes.append(Process(3 * S, "streams-1", "killed"))
    assert len(said(small, one_run_per_scheduled_time)) == 1


def test_what_ran_without_admission_is_named() -> None:
    small = three_runs()
    small.attempts.pop()
    assert said(small, one_run_per_scheduled_time) == ["ran though it was never admitted"]


# ---- NoStaleTerm ---------------------------------------------------------------------------------


def test_a_new_term_after_an_old_one_is_as_it_should_be() -> None:
    small = Small()
    small.run(1, token=5)
    small.run(2, token=6)
    small.run(3, token=6)
    assert said(small, no_stale_term) == []


def test_an_older_term_behind_a_newer_one_is_stale_on_the_topic_and_when_admitted() -> None:
    small = Small()
    small.run(1, token=5)
    small.run(2, token=6)
    small.run(3, token=5)
    assert said(small, no_stale_term) == [
        "published under token 5 after 6, at offset 2",
        "admitted under token 5, which 6 had followed",
    ]


# ---- InOrder -------------------------------------------------------------------------------------


def test_runs_admitted_out_of_order_are_named() -> None:
    small = Small()
    for second in (1, 3, 2):
        small.run(second)
    assert said(small, in_order) == [f"admitted after the run of {3 * S}"]


def test_a_retry_may_come_after_newer_runs() -> None:
    small = three_runs()
    small.attempt(S, 2, ("retry.due", 0, 0, 0), 5, 4 * S)
    assert said(small, in_order) == []


# ---- the overlap policy --------------------------------------------------------------------------


def side_by_side(policy: str) -> Small:
    small = Small([Edit(1, 0, msgspec.structs.replace(EVERY_SECOND, overlap_policy=policy))])
    for second in (1, 2, 3):
        small.run(second)
    small.outcomes[0] = msgspec.structs.replace(small.outcomes[0], finished_us=round(2.5 * S))
    return small


def test_runs_side_by_side_are_named_where_the_policy_forbids_them() -> None:
    assert said(side_by_side("allow"), no_overlap) == []
    assert said(side_by_side("queue"), no_overlap) == [f"began 450000 us before the run of {S} ended"]


def test_what_the_overlap_policy_skips_is_accounted_for_by_that_policy_alone() -> None:
    for policy, reason, good in (("skip", "overlap", True), ("queue", "queue full", True), ("allow", "overlap", False)):
        small = Small([Edit(1, 0, msgspec.structs.replace(EVERY_SECOND, overlap_policy=policy))], until=2)
        small.run(1)
        small.skip(2, 2, 1, reason, published=2.1)
        assert (said(small, no_run_lost) == []) is good


# ---- AttemptsBounded -----------------------------------------------------------------------------


def retried(ends: tuple[str, ...], **policy: object) -> Small:
    rule = msgspec.structs.replace(EVERY_SECOND, max_attempts=3, backoff_seconds=0.5, jitter="none", **policy)
    small = Small([Edit(1, 0, rule)], until=1)
    small.run(1, ends=ends)
    return small


def test_three_tries_and_a_dead_letter_are_as_they_should_be() -> None:
    small = retried(("failed", "timed_out", "failed"), backoff_factor=1.0)
    small.dead_letters.append(DeadLetter(1, S, 0, "exhausted", 3))
    assert said(small, attempts_bounded) == []


def test_a_fourth_try_of_three_is_named() -> None:
    small = retried(("failed", "failed", "failed", "succeeded"), backoff_factor=1.0)
    assert said(small, attempts_bounded) == ["attempt 4 of at most 3"]


def test_giving_up_early_is_named() -> None:
    small = retried(("failed", "failed"), backoff_factor=1.0)
    assert said(small, attempts_bounded) == ["no end after attempt 2 (failed): no dead letter, no retry"]


def test_a_success_that_was_taken_for_lost_may_be_tried_again() -> None:
    small = retried(("succeeded", "succeeded"), backoff_factor=1.0)
    started = next(outcome for outcome in small.outcomes if outcome.attempt == 1)
    small.outcomes.append(msgspec.structs.replace(started, how="lost", finished_us=started.started_us))
    assert said(small, attempts_bounded) == []


def test_a_success_is_not_tried_again() -> None:
    small = retried(("succeeded", "succeeded"), backoff_factor=1.0)
    assert said(small, attempts_bounded) == ["attempt 2 though attempt 1 succeeded"]


def test_a_retry_before_its_delay_is_named() -> None:
    small = retried(("failed", "failed", "succeeded"), backoff_factor=4.0)  # 0.5 s, then 2 s; tries are 1 s apart
    assert said(small, attempts_bounded) == ["attempt 3 came after 999000 us, 2000000 us were due"]


def test_full_jitter_may_leave_nothing_of_a_delay() -> None:
    small = retried(("failed", "failed", "succeeded"), backoff_factor=4.0)
    rule = small.edits[0].rule
    assert rule is not None
    small.edits = [Edit(1, 0, msgspec.structs.replace(rule, jitter="full"))]
    assert said(small, attempts_bounded) == []


# ---- EditsTakeEffect -----------------------------------------------------------------------------


def test_a_time_that_no_definition_has_is_named() -> None:
    small = three_runs()
    small.edits = [Edit(1, 0, Rule(every_us=2 * S))]
    assert said(small, edits_take_effect) == ["fired for a time that no definition has"] * 2


def test_the_new_schedule_may_not_fire_for_a_time_before_the_commit() -> None:
    small = Small([Edit(1, 0, Rule(every_us=60 * S)), Edit(1, S // 2, Rule(cron="* * * * * *"))], until=3)
    small.edits[1] = Edit(1, 2 * S, Rule(cron="* * * * * *"))
    small.run(2)
    assert said(small, edits_take_effect) == ["fired for a time that no definition has"]


def test_the_old_schedule_may_fire_while_the_edit_is_on_its_way() -> None:
    small = three_runs()
    small.edits.append(Edit(1, S + 1, Rule(every_us=60 * S)))
    assert said(small, edits_take_effect) == []


def test_the_old_schedule_may_not_fire_for_long_after_the_commit() -> None:
    small = Small([Edit(1, 0, EVERY_SECOND), Edit(1, S + 1, None)], until=40)
    small.run(30)
    assert said(small, edits_take_effect) == ["fired by a schedule that had ended 29.000 s before"]


def test_a_fault_makes_the_way_of_an_edit_longer() -> None:
    small = Small([Edit(1, 0, EVERY_SECOND), Edit(1, S + 1, None)], until=40)
    small.run(30)
    small.faults.append(Fault("kill", "connect", 2 * S, 14 * S, hit=True))
    assert said(small, edits_take_effect) == []


def test_a_request_that_nobody_made_is_named() -> None:
    small = three_runs()
    small.triggers[1] = msgspec.structs.replace(small.triggers[1], request_id=8)
    assert said(small, edits_take_effect) == ["nobody asked for request 8"]
    small.requests.append(Request(8, 1, 0, "run-now", 2 * S, 2 * S))
    assert said(small, edits_take_effect) == []


# ---- requests ------------------------------------------------------------------------------------


def test_a_run_now_that_was_admitted_is_as_it_should_be_and_one_that_was_not_is_lost() -> None:
    small = three_runs()
    small.requests.append(Request(8, 1, S, "run-now", S + 7, S + 7))
    assert said(small, requests_run) == ["a run-now was not admitted"]
    small.attempts.append(Attempt(1, S + 7, 8, 0, 9, ("triggers", 0, 9, 0), 5))
    assert said(small, requests_run) == []


def test_a_backfill_is_for_each_scheduled_time_of_its_range() -> None:
    small = three_runs()
    small.requests.append(Request(8, 1, 3 * S, "backfill", S, 2 * S))
    small.attempts.append(Attempt(1, S, 8, 0, 9, ("triggers", 0, 9, 0), 5))
    assert [b.scheduled_us for b in small.breaches(requests_run)] == [2 * S]


def test_a_command_that_came_to_nothing_is_lost() -> None:
    history = History([*three_runs().events(), Command("c-1", S)])
    assert [b.what for b in requests_run(history, expected_of(history))] == ["the command c-1 made no request"]


def test_a_deleted_job_s_requests_end_with_it() -> None:
    small = three_runs()
    small.requests.append(Request(8, 1, S, "run-now", S + 7, S + 7))
    small.edits.append(Edit(1, 4 * S, None))
    assert said(small, requests_run) == []


# ---- unknown outcomes ----------------------------------------------------------------------------


def without_end() -> Small:
    small = Small(until=1000)
    for second in range(1, 1001):
        small.run(second)
    lost = small.outcomes[499]
    small.outcomes[499] = Outcome(1, lost.scheduled_us, 0, "lost", 1)
    return small


def test_an_unknown_outcome_needs_a_fault() -> None:
    assert said(without_end(), outcomes_known) == ["admitted, and nothing is known of its end"]


def test_a_fault_explains_an_unknown_outcome() -> None:
    small = without_end()
    small.faults.append(Fault("kill", "worker", 495 * S, 505 * S, hit=True))
    assert said(small, outcomes_known) == []


def test_not_more_than_one_in_two_hundred_may_be_unknown() -> None:
    small = without_end()
    small.faults.append(Fault("kill", "worker", 0, 1000 * S, hit=True))
    small.outcomes = [outcome for outcome in small.outcomes if outcome.scheduled_us > 7 * S]
    assert said(small, outcomes_known) == ["8 of 1000 outcomes are unknown"]


def test_an_end_that_came_after_all_beats_lost() -> None:
    small = without_end()
    small.outcomes.append(Outcome(1, 500 * S, 0, "succeeded", 1))
    assert said(small, outcomes_known) == []


# ---- the whole -----------------------------------------------------------------------------------


def test_a_history_is_judged_the_same_when_it_is_read_back(tmp_path: Path) -> None:
    small = three_runs()
    del small.attempts[1]
    recorder = Recorder(tmp_path / "history.jsonl")
    recorder.record(*small.events())
    recorder.close()
    with (tmp_path / "history.jsonl").open("ab") as out:
        out.write(b'{"event":"row","job_')  # the machine went down while it was written
    assert judge_all(History.read(tmp_path / "history.jsonl")) == judge_all(small.history())
    assert {breach.promise for breach in judge_all(small.history())} == {"NoRunLost", "OneRunPerScheduledTime"}


def test_rows_of_other_attempts_do_not_stand_in() -> None:
    small = three_runs()
    small.rows[1] = Row(1, 2 * S, 0, 2, "succeeded")
    assert said(small, no_run_lost) == ["the end of attempt 1 is not in job_runs"]
