"""What is kept of plans for the edits that follow them."""

from __future__ import annotations

from coordinator.edits import PassedTimes
from coordinator.planning import Passed

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
