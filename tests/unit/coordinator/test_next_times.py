"""Many next times at once are those of each schedule asked alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from coordinator.loaded import LoadedJobs
from coordinator.next_times import next_times
from coordinator.rules import Rule
from coordinator.writer import NONE
from cronstream.clock import SECOND
from cronstream.schedule import schedule_of
from tests.unit.coordinator.rows import hold

START = 1_800_000_000 * SECOND
SCHEDULES = [
    schedule_of(cron="* * * * *"),
    schedule_of(cron="*/10 * * * * *", timezone="Europe/Berlin"),
    schedule_of(every_us=7 * SECOND, anchor_us=START),
    schedule_of(every_us=7 * SECOND, anchor_us=START, ends_at_us=START + 20 * SECOND),
    schedule_of(run_at_us=START),
]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=40))
def test_as_if_each_were_asked_alone(given_jobs: list[tuple[int, int]]) -> None:
    jobs = LoadedJobs(4)
    slots, expected = [], []
    for number, (which, step) in enumerate(given_jobs):
        schedule = SCHEDULES[which]
        time_us = START
        for _ in range(step):
            time_us = schedule.next_after(time_us) or time_us
        if which == 2:
            time_us = START + step * 7 * SECOND
        slots.append(hold(jobs, job_id=number, next_us=time_us, rule=Rule(schedule)))
        following = schedule.next_after(time_us)
        expected.append(NONE if following is None else following)
    times, failed = next_times(jobs, np.array(slots, np.int32))
    assert times.tolist() == expected
    assert failed == {}


def test_what_cannot_be_computed_is_named_by_slot_and_harms_no_other() -> None:
    class Broken:
        def next_after(self, t_us: int) -> int:
            raise RuntimeError("no such month")

    broken = Broken()
    jobs = LoadedJobs(4)
    slots = [
        hold(jobs, job_id=number, next_us=START, rule=Rule(schedule))  # type: ignore[arg-type]
        for number, schedule in enumerate([broken, SCHEDULES[0], broken])
    ]
    times, failed = next_times(jobs, np.array(slots, np.int32))
    assert times.tolist() == [NONE, SCHEDULES[0].next_after(START), NONE]
    assert sorted(failed) == [slots[0], slots[2]]
