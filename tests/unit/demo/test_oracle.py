"""The demo's judge on histories small enough to read."""

from __future__ import annotations

import pytest

from demo.oracle import MINUTE, SECOND, Arrival, Rule, expected_runs, judge, run_of, tolerated_runs

NOON = 1_796_040_000 * SECOND  # a full minute
END = NOON + 10 * SECOND
RUNS = {(1, NOON + 3 * SECOND), (1, NOON + 6 * SECOND)}


def call(run: tuple[int, int], late_ms: float = 40) -> Arrival:
    return Arrival(f"{run[0]}-{run[1]}-0", run[1] + round(late_ms * 1000))


def test_an_interval_counts_from_its_commit_and_the_commit_is_no_run() -> None:
    rule = Rule(7, NOON + 123, NOON + 123 + 6 * SECOND, every_seconds=2)
    assert list(rule.instants()) == [NOON + 123 + n * SECOND for n in (2, 4, 6)]


def test_an_interval_that_is_due_just_after_the_end_is_not_expected() -> None:
    assert list(Rule(7, NOON + 1, NOON + 6 * SECOND, every_seconds=2).instants()) == [
        NOON + 1 + 2 * SECOND,
        NOON + 1 + 4 * SECOND,
    ]


def test_a_cron_fires_at_the_seconds_that_its_step_divides() -> None:
    rule = Rule(7, NOON + 10 * SECOND, NOON + MINUTE + 15 * SECOND, cron_step=15)
    assert [(at - NOON) // SECOND for at in rule.instants()] == [15, 30, 45, 60, 75]


def test_a_step_that_does_not_divide_the_minute_begins_anew_with_each() -> None:
    rule = Rule(7, NOON + 40 * SECOND, NOON + MINUTE + 8 * SECOND, cron_step=7)
    assert [(at - NOON) // SECOND for at in rule.instants()] == [42, 49, 56, 60, 67]


def test_an_edit_cuts_the_old_rule_at_its_commit() -> None:
    commit = NOON + 5 * SECOND + 1
    old, new = Rule(7, NOON, commit, every_seconds=2), Rule(7, commit, END, every_seconds=3)
    assert expected_runs([old, new]) == {
        (7, NOON + 2 * SECOND),
        (7, NOON + 4 * SECOND),
        (7, commit + 3 * SECOND),
    }
    # while the edit was on its way the old schedule may still have fired
    assert tolerated_runs([old, new], 2 * SECOND, END) == {(7, NOON + 6 * SECOND)}


def test_all_is_well() -> None:
    verdict = judge(RUNS, set(), [call(run) for run in RUNS], END)
    assert verdict.clean
    assert (verdict.expected, verdict.received, verdict.worst_lateness_ms) == (2, 2, 40.0)


def test_a_run_that_never_came_is_missed() -> None:
    first, second = sorted(RUNS)
    verdict = judge(RUNS, set(), [call(second)], END)
    assert not verdict.clean
    assert (verdict.received, verdict.missed) == (1, (first,))


def test_a_run_that_came_three_times_is_duplicated_twice() -> None:
    first, second = sorted(RUNS)
    verdict = judge(RUNS, set(), [call(first), call(second), call(first, 90), call(first, 5000)], END)
    assert not verdict.clean
    assert verdict.duplicated == (first, first)
    assert verdict.received == 2
    assert verdict.worst_lateness_ms == 40.0, "lateness is that of the first"


def test_a_call_before_its_scheduled_time_is_early() -> None:
    first, second = sorted(RUNS)
    verdict = judge(RUNS, set(), [call(first, -0.001), call(second)], END)
    assert not verdict.clean
    assert verdict.early == (first,)


def test_a_run_beyond_the_window_is_early_too_when_it_is() -> None:
    beyond = (1, END + SECOND)
    verdict = judge(RUNS, set(), [*(call(run) for run in RUNS), call(beyond, -500)], END)
    assert verdict.early == (beyond,)


def test_a_call_that_no_definition_demands_is_named() -> None:
    stray = (1, NOON + 4 * SECOND)
    arrivals = [*(call(run) for run in RUNS), call(stray), Arrival("", END), Arrival("1-2-9", END)]
    verdict = judge(RUNS, set(), arrivals, END)
    assert not verdict.clean
    assert verdict.unexpected == (f"1-{stray[1]}-0", "", "1-2-9")


def test_what_the_old_schedule_fired_meanwhile_is_neither_expected_nor_a_fault() -> None:
    meanwhile = (1, NOON + 4 * SECOND)
    assert judge(RUNS, {meanwhile}, [*(call(run) for run in RUNS), call(meanwhile)], END).clean
    twice = judge(RUNS, {meanwhile}, [*(call(run) for run in RUNS), call(meanwhile), call(meanwhile)], END)
    assert twice.duplicated == (meanwhile,)


def test_what_is_due_after_the_end_is_left_alone() -> None:
    assert judge(RUNS, set(), [*(call(run) for run in RUNS), call((9, END + 1))], END).clean


@pytest.mark.parametrize("key", ["", "7", "7-8", "7-8-0-0", "a-8-0", "7--8-0", "7-8-1", "٧-8-0"])
def test_a_key_of_another_form_is_no_scheduled_run(key: str) -> None:
    assert run_of(key) is None


def test_the_key_of_a_scheduled_run() -> None:
    assert run_of(f"12-{NOON}-0") == (12, NOON)
