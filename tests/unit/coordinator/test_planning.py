"""What becomes of a job whose definition was edited. Instants in seconds, here."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.planning import Change, Plan, replan
from tests.unit.coordinator.rows import SECOND, columns

EACH_10 = {"every_us": 10 * SECOND, "anchor_us": 0}
EACH_4 = {"every_us": 4 * SECOND, "anchor_us": 0}


def s(times_us: list[int]) -> list[float]:
    return [time_us / SECOND for time_us in times_us]


def plan(
    history: list[dict[str, Any] | None],
    commits: list[float],
    *,
    next_s: float | None = None,
    now_s: float,
    anchor_s: float | None = None,
    **more: Any,
) -> Plan:
    """``history``: the columns before, between and after the commits."""
    rows = [None if given is None else columns(**given) for given in history]
    changes = [Change(n, n, round(at * SECOND), rows[n]) for n, at in enumerate(commits)]
    return replan(
        changes,
        rows[-1],
        next_us=None if next_s is None else round(next_s * SECOND),
        anchor_us=None if anchor_s is None else round(anchor_s * SECOND),
        now_us=round(now_s * SECOND),
        **more,
    )


def skips(found: Plan) -> list[tuple[str, float, float, int]]:
    return [(skip.reason, skip.first_us / SECOND, skip.last_us / SECOND, skip.count) for skip in found.skips]


def test_an_insert_begins_after_its_commit() -> None:
    found = plan([None, EACH_10], [20], now_s=21)
    assert (found.next_us, found.runs, found.skips) == (30 * SECOND, [], [])


def test_every_without_an_anchor_counts_from_the_commit() -> None:
    found = plan([None, {"every_us": 10 * SECOND}], [3], now_s=4)
    assert (found.next_us, found.anchor_us) == (13 * SECOND, 3 * SECOND)


def test_the_anchor_stays_until_every_itself_is_changed() -> None:
    ten, four = {"every_us": 10 * SECOND}, {"every_us": 4 * SECOND}
    kept = plan([ten, {**ten, "enabled": False}, ten], [20, 21], next_s=23, anchor_s=3, now_s=22)
    assert (kept.next_us, kept.anchor_us) == (23 * SECOND, 3 * SECOND)
    moved = plan([ten, four], [20], next_s=23, anchor_s=3, now_s=22)
    assert (moved.next_us, moved.anchor_us) == (24 * SECOND, 20 * SECOND)


def test_an_edit_that_moves_no_time_never_steps_over_one_that_is_due() -> None:
    found = plan([EACH_10, {**EACH_10, "handler": "http", "misfire_policy": "SKIP"}], [35], next_s=30, now_s=36)
    assert (found.next_us, found.runs, found.skips) == (30 * SECOND, [], [])
    assert found.rule is not None
    assert found.rule.misfire_policy == "SKIP"


def test_a_lower_bound_becomes_a_time_of_the_schedule() -> None:
    assert plan([EACH_10, EACH_10], [25], next_s=20.000001, now_s=26).next_us == 30 * SECOND


@pytest.mark.parametrize(
    ("policy", "runs", "skipped"),
    [
        ("FIRE_NOW", [30], [("misfire: superseded by a newer missed run", 10, 20, 2)]),
        ("SKIP", [], [("misfire: policy SKIP", 10, 30, 3)]),
        ("CATCH_UP", [20, 30], [("misfire: beyond catch_up_limit", 10, 10, 1)]),
    ],
)
def test_what_was_owed_before_the_commit_goes_by_the_old_policy(policy: str, runs: Any, skipped: Any) -> None:
    old = {**EACH_10, "misfire_policy": policy, "misfire_grace_us": 0, "catch_up_limit": 2}
    found = plan([old, EACH_4], [33], next_s=10, now_s=50)
    assert (s(found.runs), skips(found), found.next_us) == (runs, skipped, 36 * SECOND)


def test_a_pause_records_what_was_owed_and_a_resume_begins_anew() -> None:
    off = {**EACH_10, "enabled": False}
    paused = plan([EACH_10, off], [33], next_s=20, now_s=34)
    assert (skips(paused), paused.next_us, paused.runs) == ([("paused", 20, 30, 2)], None, [])
    assert plan([off, EACH_10], [52], now_s=53).next_us == 60 * SECOND


def test_a_deleted_job_has_no_rule_and_its_owed_times_are_skipped() -> None:
    found = plan([EACH_10, None], [33], next_s=20, now_s=34)
    assert (found.rule, found.next_us, skips(found)) == (None, None, [("deleted", 20, 30, 2)])


def test_a_job_edited_and_then_deleted_runs_nothing_as_its_work_is_gone() -> None:
    found = plan([EACH_10, EACH_4, None], [33, 40], next_s=20, now_s=41)
    assert (found.runs, skips(found)) == ([], [("deleted", 20, 30, 2), ("deleted", 36, 40, 2)])


def test_times_that_the_old_schedule_ran_meanwhile_are_not_recorded_as_skipped() -> None:
    found = plan([EACH_10, EACH_4], [11], next_s=50, now_s=45)
    assert skips(found) == [("edited", 12, 36, 6)]  # 12 16 24 28 32 36; 20 and 40 ran
    assert found.next_us == 44 * SECOND


def test_what_ran_meanwhile_counts_against_every_later_change_of_the_chain() -> None:
    second, day = {"every_us": SECOND, "anchor_us": 0}, {"every_us": 86_400 * SECOND, "anchor_us": 0}
    found = plan([second, day, second], [1.5, 2.5], next_s=11, now_s=10.5)
    assert (found.next_us, found.skips, found.runs) == (11 * SECOND, [], [])


def test_a_second_edit_knows_what_ran_while_the_first_was_on_its_way() -> None:
    paused = {**EACH_4, "enabled": False}
    first = plan([EACH_4, paused], [9], next_s=32, now_s=30)  # planned at 30: the old schedule ran 12 to 28
    assert (s(sorted(first.passed.times)), first.passed.until_us) == ([12, 16, 20, 24, 28], 28 * SECOND)
    second = plan([paused, EACH_4], [18], now_s=31, passed=first.passed)
    assert (skips(second), second.next_us) == ([], 32 * SECOND)
    other = plan([paused, {"every_us": 5 * SECOND, "anchor_us": 0}], [18], now_s=31, passed=first.passed)
    assert (skips(other), other.next_us) == ([("edited", 25, 25, 1)], 30 * SECOND), "20 ran already"


def test_what_ran_before_an_edit_committed_is_no_matter_of_it() -> None:
    first = plan([EACH_4, {**EACH_4, "enabled": False}], [9], next_s=32, now_s=30)
    later = plan([{**EACH_4, "enabled": False}, EACH_4], [29], now_s=31, passed=first.passed)
    assert (skips(later), later.next_us, later.passed.times) == ([], 32 * SECOND, frozenset())


def test_a_single_time_that_ran_while_the_edit_was_on_its_way_does_not_run_again() -> None:
    once = {"run_at_us": 10 * SECOND}
    found = plan([once, {**once, "ends_at_us": 90 * SECOND}], [5], next_s=None, now_s=12)
    assert (found.next_us, found.runs, found.skips) == (None, [], [])


def test_several_changes_settle_each_stretch_in_order() -> None:
    found = plan([None, EACH_10, EACH_4], [5, 25], now_s=30)
    assert (s(found.runs), found.next_us) == ([10, 20], 28 * SECOND)


def test_what_a_dead_leader_settled_is_not_published_again() -> None:
    found = plan([None, EACH_10, EACH_4], [5, 25], now_s=30, settled_us=20 * SECOND)
    assert (found.runs, found.skips, found.next_us) == ([], [], 28 * SECOND)


def test_a_run_at_in_the_past_says_so_but_only_when_it_is_new() -> None:
    once = {"run_at_us": 10 * SECOND}
    past = ("already past when the definition was committed", 10, 10, 1)
    assert skips(plan([None, once], [20], now_s=21)) == [past]
    assert skips(plan([{**once, "enabled": False}, once], [20], now_s=21)) == []


ONCE = {"run_at_us": 10 * SECOND}
WAITS = {**ONCE, "enabled": False}
PASSED = ("paused", 10, 10, 1)


def test_a_single_time_that_passes_in_a_pause_is_recorded_when_the_job_is_resumed_edited_or_deleted() -> None:
    paused = plan([ONCE, WAITS], [5], next_s=10, anchor_s=1, now_s=6)
    assert (skips(paused), paused.next_us, paused.anchor_us) == ([], None, 5 * SECOND)
    for after in (ONCE, {**WAITS, "handler": "http"}, {"every_us": 60 * SECOND}, {"run_at_us": 90 * SECOND}, None):
        assert skips(plan([WAITS, after], [20], anchor_s=5, now_s=21)) == [PASSED]
    assert skips(plan([ONCE, WAITS, ONCE], [5, 20], next_s=10, anchor_s=1, now_s=9)) == [PASSED]


def test_a_single_time_in_a_pause_is_recorded_once_and_only_if_it_passed_in_it() -> None:
    edited = plan([WAITS, {**WAITS, "handler": "http"}], [20], anchor_s=5, now_s=21)
    assert edited.anchor_us == 20 * SECOND
    assert skips(plan([{**WAITS, "handler": "http"}, ONCE], [30], anchor_s=20, now_s=31)) == []
    assert skips(plan([WAITS, ONCE], [8], anchor_s=5, now_s=9)) == [], "it is still to come"
    assert skips(plan([WAITS, ONCE], [30], anchor_s=12, now_s=31)) == [], "it ran before the pause"


def test_a_single_time_that_ran_before_the_pause_was_heard_of_is_not_recorded_as_skipped() -> None:
    late = plan([ONCE, WAITS], [5], next_s=None, anchor_s=1, now_s=12)  # heard of at 12: it ran at 10
    assert (late.anchor_us, s(sorted(late.passed.times))) == (10 * SECOND, [10])
    assert skips(plan([WAITS, ONCE], [30], anchor_s=10, now_s=31)) == []
    assert skips(plan([ONCE, WAITS, ONCE], [5, 11], next_s=None, anchor_s=1, now_s=12)) == []


def test_a_pause_that_finds_its_single_time_owed_records_it_once() -> None:
    found = plan([ONCE, WAITS, ONCE], [12, 20], next_s=10, anchor_s=1, now_s=21)
    assert skips(found) == [PASSED]


def test_a_schedule_that_ended_makes_up_no_time_of_long_ago() -> None:
    ended = {"cron": "* * * * *", "ends_at_us": 100 * SECOND}
    assert plan([{"cron": "* * * * *"}, ended], [200], next_s=240, now_s=201).skips == []


def test_an_unreadable_definition_is_recorded_and_a_sound_one_takes_over() -> None:
    broken = {"cron": "no such thing"}
    found = plan([EACH_10, broken], [33], next_s=30, now_s=34)
    assert [skip[1:] for skip in skips(found)] == [(33, 33, 1), (30, 30, 1)]
    assert all(skip.reason.startswith("invalid: cron") for skip in found.skips)
    assert found.next_us is None
    assert plan([broken, EACH_10], [41], now_s=42).next_us == 50 * SECOND


def test_a_job_that_was_set_aside_is_revived_by_any_edit() -> None:
    assert plan([EACH_10, {**EACH_10, "handler": "http"}], [33], next_s=None, now_s=45).next_us == 40 * SECOND


def test_commit_times_that_go_back_bring_nothing_back() -> None:
    found = plan([EACH_10, EACH_4, EACH_10], [40, 20], next_s=50, now_s=41)
    assert (found.next_us, found.runs, found.skips) == (50 * SECOND, [], [])
