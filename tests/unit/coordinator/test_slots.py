"""The table of slots is a dictionary, whatever comes and goes."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.slots import ABSENT, SlotIndex

# Few ids, some of which begin their search at one place, and the largest there are.
IDS = st.sampled_from([*range(40), 2**62, 2**63 - 1, 5 * 10**12])


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sets(IDS, max_size=12)), max_size=40))
def test_it_finds_what_a_dictionary_finds(steps: list[tuple[bool, set[int]]]) -> None:
    column = np.zeros(64, np.int64)
    index, expected, free = SlotIndex(), {}, list(range(64))
    for adds, ids in steps:
        chosen = [job_id for job_id in sorted(ids) if (job_id in expected) != adds]
        if adds:
            slots = np.array([free.pop() for _ in chosen], np.int32)
            column[slots] = chosen
            index.add(column, slots)
            expected.update(zip(chosen, slots.tolist(), strict=True))
        else:
            slots = np.array([expected.pop(job_id) for job_id in chosen], np.int32)
            index.remove(column, slots)
            free.extend(slots.tolist())
        asked = np.array([*range(50), 2**62, 2**63 - 1], np.int64)
        assert index.find(column, asked).tolist() == [expected.get(job_id, ABSENT) for job_id in asked.tolist()]
        assert len(index) == len(expected)


def test_it_grows_and_forgets_what_is_gone() -> None:
    """A million jobs come, and then go and come again many times, a slice at a time."""
    count = 300_000
    column = np.arange(1, count + 1, dtype=np.int64) * 7
    index = SlotIndex()
    slots = np.arange(count, dtype=np.int32)
    for part in np.array_split(slots, 20):
        index.add(column, part)
    for turn in range(40):
        part = slots[turn * 7_000 : (turn + 1) * 7_000]
        index.remove(column, part)
        assert set(index.find(column, column[part]).tolist()) == {ABSENT}
        column[part] += 10**9
        index.add(column, part)
    assert np.array_equal(index.find(column, column), slots)
    assert len(index) == count
    assert index.nbytes() <= 16 * count
