"""The mailbox: what is taken at once, and in which order."""

from __future__ import annotations

from coordinator.arrivals import MOST_EDITS, Arrival, Audited, Edit, Edits, Loaded, Mailbox


def edits(*job_ids: int, as_of: int = 0) -> Edits:
    return Edits([Edit(job_id, (), 1, None, None, 0, None) for job_id in job_ids], as_of)


def taken(*arrivals: Arrival) -> list[Arrival]:
    mailbox = Mailbox()
    for arrival in arrivals:
        mailbox.put(arrival)
    return [arrival for arrival in iter(mailbox.take, None) if arrival is not None]


def test_edits_that_wait_are_planned_together() -> None:
    assert taken(edits(1, as_of=3), edits(2, 3, as_of=4), edits(4, as_of=9)) == [edits(1, 2, 3, 4, as_of=3)]


def test_two_edits_of_one_job_are_planned_one_after_the_other() -> None:
    assert taken(edits(1), edits(2), edits(1, 3), edits(4)) == [edits(1, 2), edits(1, 3, 4)]


def test_nothing_is_taken_before_what_arrived_earlier() -> None:
    loaded = Loaded([], 5)
    assert taken(edits(1), loaded, edits(2), Audited(), edits(3)) == [edits(1), loaded, edits(2), Audited(), edits(3)]


def test_no_more_edits_are_taken_than_are_written_together() -> None:
    many = [edits(job_id) for job_id in range(MOST_EDITS + 1)]
    assert [len(one.edits) for one in taken(*many) if isinstance(one, Edits)] == [MOST_EDITS, 1]
