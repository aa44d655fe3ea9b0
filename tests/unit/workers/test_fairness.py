"""Slots are shared fairly."""

from __future__ import annotations

from dataclasses import dataclass

from workers.fairness import FairQueue


@dataclass(frozen=True)
class Entry:
    tenant: str
    job_id: int
    number: int = 0


def take_all(queue: FairQueue[Entry]) -> list[Entry]:
    taken = []
    while (entry := queue.take()) is not None:
        taken.append(entry)
    return taken


def test_a_hanging_job_leaves_three_quarters_of_the_slots() -> None:
    queue: FairQueue[Entry] = FairQueue(100)
    for number in range(500):
        queue.put(Entry("a", 1, number))
    assert len(take_all(queue)) == 25
    queue.put(Entry("a", 2))
    assert take_all(queue) == [Entry("a", 2)]


def test_a_hanging_tenant_leaves_a_quarter_of_the_slots() -> None:
    queue: FairQueue[Entry] = FairQueue(100)
    for job in range(500):
        queue.put(Entry("a", job))
    assert len(take_all(queue)) == 75
    for job in range(500, 520):
        queue.put(Entry("b", job))
    assert {entry.tenant for entry in take_all(queue)} == {"b"}


def test_tenants_take_turns_and_so_do_jobs() -> None:
    queue: FairQueue[Entry] = FairQueue(100)
    for number in range(3):
        queue.put(Entry("a", 1, number))
    for number in range(2):
        queue.put(Entry("a", 2, number))
    queue.put(Entry("b", 3))
    order = [(entry.tenant, entry.job_id, entry.number) for entry in take_all(queue)]
    assert order == [("a", 1, 0), ("b", 3, 0), ("a", 2, 0), ("a", 1, 1), ("a", 2, 1), ("a", 1, 2)]


def test_a_single_slot_is_usable() -> None:
    queue: FairQueue[Entry] = FairQueue(1)
    queue.put(Entry("a", 1, 0))
    queue.put(Entry("a", 1, 1))
    assert take_all(queue) == [Entry("a", 1, 0)]
    queue.done(Entry("a", 1, 0))
    assert take_all(queue) == [Entry("a", 1, 1)]


def test_removed_entries_never_run() -> None:
    queue: FairQueue[Entry] = FairQueue(10)
    for number in range(4):
        queue.put(Entry("a", number % 2, number))
    removed = queue.remove(lambda entry: entry.job_id == 1)
    assert [entry.number for entry in removed] == [1, 3]
    assert [entry.number for entry in take_all(queue)] == [0, 2]
