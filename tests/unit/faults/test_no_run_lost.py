"""The judge of lost runs on small literal histories: what was owed, and which skips have a ground."""

from __future__ import annotations

import msgspec

from tests.faults.events import Edit, Rule
from tests.faults.judges.no_run_lost import no_run_lost
from tests.unit.faults.small import EVERY_SECOND, S, Small, said, three_runs


def test_a_time_that_nobody_knows_of_is_lost() -> None:
    small = Small()
    small.run(1)
    small.run(3)
    assert said(small, no_run_lost) == ["neither admitted nor recorded as skipped"]


def test_published_but_never_admitted_is_lost() -> None:
    small = three_runs()
    del small.attempts[1]
    assert said(small, no_run_lost) == ["neither admitted nor recorded as skipped"]


def test_an_end_that_history_does_not_have_is_lost() -> None:
    small = three_runs()
    del small.rows[1]
    assert said(small, no_run_lost) == ["the end of attempt 1 is not in job_runs"]


def missed(policy: str) -> Small:
    return Small([Edit(1, 0, Rule(every_us=S, misfire_policy=policy, grace_us=2 * S))], until=9)


def test_what_skip_drops_after_its_grace_is_accounted_for() -> None:
    small = missed("SKIP")
    small.skip(1, 6, 6, "misfire: policy SKIP", published=9)
    for second in (7, 8, 9):
        small.run(second, published=9.1, at=9.2)
    assert said(small, no_run_lost) == []


def test_a_skip_within_the_grace_has_no_ground() -> None:
    small = missed("SKIP")
    small.skip(1, 7, 7, "misfire: policy SKIP", published=9)
    for second in (8, 9):
        small.run(second, published=9.1, at=9.2)
    assert said(small, no_run_lost) == ["skipped without ground: misfire: policy SKIP"]


def test_a_reason_of_another_policy_has_no_ground() -> None:
    small = missed("CATCH_UP")
    small.skip(1, 6, 6, "misfire: policy SKIP", published=9)
    for second in (7, 8, 9):
        small.run(second, published=9.1, at=9.2)
    assert len(said(small, no_run_lost)) == 6


def test_fire_now_runs_the_newest_that_was_missed() -> None:
    small = missed("FIRE_NOW")
    small.skip(1, 5, 5, "misfire: superseded by a newer missed run", published=9)
    for second in (6, 7, 8, 9):
        small.run(second, published=9.1, at=9.2)
    assert said(small, no_run_lost) == []


def test_fire_now_may_not_drop_all_that_was_missed() -> None:
    small = missed("FIRE_NOW")
    small.skip(1, 5, 5, "misfire: superseded by a newer missed run", published=9)
    small.skip(6, 6, 1, "misfire: superseded by a newer missed run", published=9)
    for second in (7, 8, 9):
        small.run(second, published=9.1, at=9.2)
    assert said(small, no_run_lost) == ["FIRE_NOW skipped all that was missed and ran none of it"]


def test_the_policy_before_an_edit_counts_while_the_edit_is_on_its_way() -> None:
    small = missed("SKIP")
    small.edits.append(Edit(1, S // 2, Rule(every_us=S, misfire_policy="CATCH_UP", grace_us=2 * S)))
    small.skip(1, 6, 6, "misfire: policy SKIP", published=9)
    for second in (7, 8, 9):
        small.run(second, published=9.1, at=9.2)
    assert said(small, no_run_lost) == []


def test_a_skip_that_counts_wrong_is_named() -> None:
    small = missed("SKIP")
    small.skip(1, 6, 5, "misfire: policy SKIP", published=9)
    for second in (7, 8, 9):
        small.run(second, published=9.1, at=9.2)
    assert said(small, no_run_lost) == ["a skip (misfire: policy SKIP) says 5 times, the definitions have 6"]


def test_a_skip_that_history_does_not_have_is_named() -> None:
    small = missed("SKIP")
    small.skip(1, 6, 6, "misfire: policy SKIP", published=9)
    small.rows.clear()
    for second in (7, 8, 9):
        small.run(second, published=9.1, at=9.2)
    assert said(small, no_run_lost) == ["a skip (misfire: policy SKIP) is not in job_runs"]


def test_what_a_paused_job_owed_is_accounted_for() -> None:
    small = Small([Edit(1, 0, EVERY_SECOND), Edit(1, 2 * S + 1, Rule(every_us=S, enabled=False))])
    small.run(1)
    small.skip(2, 2, 1, "paused", published=2.5)
    assert said(small, no_run_lost) == []


def test_a_leader_whose_clock_is_behind_skips_what_a_pause_ended_before_its_commit() -> None:
    pause = Edit(1, 2 * S + S // 10, Rule(every_us=S, enabled=False))
    small = Small([Edit(1, 0, EVERY_SECOND), pause])
    small.run(1)
    small.skip(2, 2, 1, "paused", published=1.99)
    assert said(small, no_run_lost) == []
    small.skips[0] = msgspec.structs.replace(small.skips[0], published_us=S)
    assert said(small, no_run_lost) == ["skipped without ground: paused"]


def test_a_single_time_that_passes_in_a_pause_is_recorded() -> None:
    once = Rule(run_at_us=2 * S)
    paused = msgspec.structs.replace(once, enabled=False)
    for edits in (
        [Edit(1, 0, once), Edit(1, S, paused), Edit(1, round(2.5 * S), once)],
        [Edit(1, 0, paused), Edit(1, round(2.5 * S), None)],
    ):
        small = Small(edits, until=3)
        assert said(small, no_run_lost) == ["passed in a pause, and not recorded"]
        small.skip(2, 2, 1, "paused", published=2.6)
        assert said(small, no_run_lost) == []
    assert said(Small([Edit(1, 0, paused)], until=3), no_run_lost) == [], "no edit has found it passed"


def test_a_job_that_goes_on_cannot_be_skipped_as_paused() -> None:
    small = Small()
    small.run(1)
    small.skip(2, 2, 1, "paused", published=2.5)
    small.run(3)
    assert said(small, no_run_lost) == ["skipped without ground: paused"]


def test_times_passed_over_by_an_edit_on_its_way_are_accounted_for() -> None:
    small = Small([Edit(1, 0, Rule(every_us=60 * S)), Edit(1, S // 2, EVERY_SECOND)])
    small.skip(1, 1, 1, "edited", published=1.6)  # of a schedule that begins at 1.5
    assert said(small, no_run_lost)[-1].startswith("a skip (edited) says 1 times")


def test_what_the_old_schedule_had_skipped_the_edit_does_not_count_again() -> None:
    small = Small(
        [
            Edit(1, 0, Rule(cron="*/2 * * * * *", grace_us=S)),
            Edit(1, S // 2, Rule(cron="* * * * * *", grace_us=S)),
        ],
        until=9,
    )
    small.run(2)
    small.run(4)
    small.skip(6, 6, 1, "misfire: superseded by a newer missed run", published=9)
    small.run(8, published=9, at=9.1)
    small.run(9, published=9.6, at=9.7)
    small.skip(1, 7, 4, "edited", published=9.5)  # 1, 3, 5, 7
    assert said(small, no_run_lost) == []
    small.skips[-1] = msgspec.structs.replace(small.skips[-1], count=3)
    assert said(small, no_run_lost) == ["a skip (edited) says 3 times, the definitions have 5"]
