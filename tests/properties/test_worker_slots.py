"""Slots of two classes: what one class does is nothing to the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from workers.fairness import FairQueue
from workers.slots import Slots

NUMBERS = {"task": 8, "program": 3}


@dataclass(frozen=True)
class Entry:
    tenant: str
    job_id: int
    number: int
    slots: str


entries = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 5), st.sampled_from(["task", "program"])), max_size=60
).map(lambda made: [Entry(tenant, job, number, slots) for number, (tenant, job, slots) in enumerate(made)])


@given(entries, st.lists(st.integers(0, 10), max_size=40))
def test_each_class_behaves_as_if_it_were_alone(made: list[Entry], ends: list[int]) -> None:
    both: Slots[Entry] = Slots(NUMBERS, lambda entry: entry.slots)
    alone: dict[str, FairQueue[Entry]] = {name: FairQueue(slots) for name, slots in NUMBERS.items()}
    running: list[Entry] = []
    for entry in made:
        both.put(entry)
        alone[entry.slots].put(entry)
    for end in [0, *ends]:
        taken = list(both.take_all())
        for queue in alone.values():
            expected = []
            while (entry := queue.take()) is not None:
                expected.append(entry)
            assert [entry for entry in taken if alone[entry.slots] is queue] == expected
        running += taken
        assert all(Counter(entry.slots for entry in running)[name] <= most for name, most in NUMBERS.items())
        assert both.running == len(running)
        assert both.waiting == sum(queue.waiting for queue in alone.values())
        if running:
            done = running.pop(end % len(running))
            both.done(done)
            alone[done.slots].done(done)
    removed = both.remove(lambda entry: entry.number % 2 == 0)
    assert all(entry.number % 2 == 0 for entry in removed)
    assert both.waiting == sum(queue.waiting for queue in alone.values()) - len(removed)


@given(st.integers(4, 200), st.integers(1, 50))
def test_a_tenant_that_hangs_every_job_it_has_leaves_others_a_slot_of_each_class(slots: int, jobs: int) -> None:
    both: Slots[Entry] = Slots({"task": slots, "program": slots}, lambda entry: entry.slots)
    for number in range(jobs * slots):
        both.put(Entry("hangs", number % jobs, number, ("task", "program")[number % 2]))
    list(both.take_all())
    for name in ("task", "program"):
        fresh = Entry("other", 1000, 0, name)
        both.put(fresh)
        assert list(both.take_all()) == [fresh]
