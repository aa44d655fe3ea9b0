"""A run's attempt and its stretch and key are one to one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cronstream.records import Item, Kind
from streams.admission import admit
from streams.keys import ID_BITS, by_stretch
from streams.window import Window
from tests.unit.streams.making import NOON, at, run, runs, triggers

LARGEST = 2**ID_BITS - 1

items = st.builds(
    run,
    st.sampled_from([0, 1, 2, LARGEST]),
    st.sampled_from(
        [NOON, NOON + 1, NOON - (NOON & 0xFFFFF), NOON - (NOON & 0xFFFFF) - 1, NOON + 2**20, 0, -1, -(2**20)]
    ),
    st.sampled_from([0, 7]),
    st.sampled_from([1, 2]),
)


@given(st.lists(items, min_size=1, max_size=60))
def test_two_items_share_a_key_if_and_only_if_they_are_the_same_attempt(chosen: list[Item]) -> None:
    batch = triggers(chosen)
    found = {
        int(index): (stretch, key)
        for stretch, keys, indices in by_stretch(batch, np.arange(len(batch)))
        for key, index in zip(keys.tolist(), indices, strict=True)
    }
    first = {(*item.run, item.attempt): index for index, item in reversed(list(enumerate(chosen)))}
    assert sorted(found) == sorted(first.values())
    assert len(set(found.values())) == len(found)
    assert all(0 <= key < 2**63 for _, key in found.values())


def test_a_run_of_an_id_that_no_job_can_have_is_set_aside_and_the_rest_goes_on() -> None:
    batch = triggers([run(LARGEST), run(LARGEST + 1), run(-1), Item(Kind.CANCEL, -1, NOON)])
    admission = admit(Window(1), batch, at(0))
    assert (runs(admission.attempts), runs(admission.strange)) == (
        [(LARGEST, NOON, 0, 1)],
        [(LARGEST + 1, NOON, 0, 1), (-1, NOON, 0, 1)],
    )
    assert runs(admission.outcomes) == [(-1, NOON, 0, 0)]
