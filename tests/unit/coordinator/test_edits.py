"""What is kept of plans for the edits that follow them."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.arrivals import Edit
from coordinator.edits import PassedTimes, planned_edit
from coordinator.planning import Change, Passed
from coordinator.writer import NONE
from tests.unit.coordinator.rows import columns

S = 1_000_000


def test_what_passed_is_known_to_the_next_edit_of_that_job_alone() -> None:
    passed = PassedTimes(600)
    passed.keep(1, Passed(5 * S, frozenset({4 * S, 5 * S})), 6 * S)
    assert passed.of(1).times == {4 * S, 5 * S}
    assert passed.of(2).times == frozenset()
    passed.keep(1, Passed(), 7 * S)
    assert passed.of(1).times == frozenset()


def test_what_passed_long_ago_is_forgotten() -> None:
    passed = PassedTimes(600)
    for job_id in range(1000):
        at_us = job_id * S
        passed.keep(job_id, Passed(at_us, frozenset({at_us})), at_us)
    assert passed.of(398).times == frozenset()
    assert passed.of(399).times == {399 * S}


@pytest.mark.parametrize("previous", [{}, {"every_us": "x"}, columns(misfire_grace_us="x")], ids=["none", "few", "odd"])
def test_a_schedule_before_that_cannot_be_read_sets_no_sound_job_aside(previous: dict[str, Any]) -> None:
    edit = Edit(1, (Change(5, 8, 33 * S, previous),), 8, columns(every_us=10 * S, anchor_us=0), 45 * S, 3, None)
    found = planned_edit(edit, 45 * S, 3, None, 52 * S, NONE)
    assert found.plan.next_us == 50 * S  # up to the next time of the schedule before, times may be out already
    (skip,) = found.plan.skips
    assert skip.reason.startswith("invalid: ")
    assert found.row().change_ids == (5,)
    assert found.job() is not None


def test_a_definition_that_cannot_be_read_is_set_aside_whatever_was_before() -> None:
    unsound = columns(every_us=10 * S, anchor_us=0)
    del unsound["handler"]
    edit = Edit(1, (Change(5, 8, 33 * S, {}),), 8, unsound, 45 * S, 3, None)
    found = planned_edit(edit, 45 * S, 3, None, 52 * S, NONE)
    assert (found.job(), len(found.plan.skips)) == (None, 1)
