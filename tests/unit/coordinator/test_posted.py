"""Changes that were handed over are not planned twice, until they are closed."""

from __future__ import annotations

from coordinator.arrivals import Edit
from coordinator.audit import OpenChange
from coordinator.planning import Change
from coordinator.posted import Posted


def edit(job_id: int, *change_ids: int) -> Edit:
    return Edit(job_id, tuple(Change(number, 1, 0, None) for number in change_ids), 1, None, None, 0, None)


def test_what_was_handed_over_is_not_new() -> None:
    posted = Posted()
    posted.add([edit(1, 10, 11), edit(2, 20)])
    changes = [OpenChange(number, job_id, 0) for job_id, number in ((1, 10), (1, 12), (2, 20), (3, 30))]
    assert [change.change_id for change in posted.new(changes)] == [12, 30]
    posted.forget([2, 9])
    assert [change.change_id for change in posted.new(changes)] == [12, 20, 30]


def test_what_is_closed_is_forgotten_and_the_rest_stays() -> None:
    posted = Posted()
    posted.add([edit(1, 10, 11), edit(2, 20)])
    before = posted.ids()
    posted.add([edit(2, 21)])
    posted.close(before - {11})
    assert posted.by_job == {1: {11}, 2: {21}}
    posted.close({11, 21})
    assert posted.by_job == {}
