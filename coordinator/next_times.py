"""The times after those that were published, for many jobs at once.

A plain interval is an addition. Everything else asks its schedule, once for each
distinct pair of schedule and instant: jobs that share a compiled schedule and
fall due together cost one question, however many they are.
"""

from __future__ import annotations

import numpy as np

from coordinator.loaded import LoadedJobs
from coordinator.slots import Slots
from coordinator.writer import NONE
from cronstream.records import Int64s


def next_times(jobs: LoadedJobs, slots: Slots) -> tuple[Int64s, dict[int, Exception]]:
    """The scheduled time after the armed one (NONE: there is none), and by slot what could not be computed."""
    times = jobs.next_us[slots]
    period = jobs.period_us[slots]
    result = times + period
    asked = np.flatnonzero(period == 0)
    if not asked.size:
        return result, {}
    # Sorted by (schedule, instant), equal pairs lie together: one question a run of them.
    asked = asked[np.lexsort((times[asked], jobs.schedule_id[slots[asked]]))]
    schedule_id, asked_us = jobs.schedule_id[slots[asked]], times[asked]
    begins = np.ones(len(asked), np.bool_)
    begins[1:] = (schedule_id[1:] != schedule_id[:-1]) | (asked_us[1:] != asked_us[:-1])
    firsts = np.flatnonzero(begins)
    answers = np.full(len(firsts), NONE, np.int64)
    failed: dict[int, Exception] = {}
    for number, (slot, time_us) in enumerate(
        zip(slots[asked[firsts]].tolist(), asked_us[firsts].tolist(), strict=True)
    ):
        try:
            following = jobs.rule(slot).next_after(time_us)
        except Exception as error:
            alike = asked[np.cumsum(begins) - 1 == number]
            failed.update(dict.fromkeys(slots[alike].tolist(), error))
            continue
        if following is not None:
            answers[number] = following
    result[asked] = answers[np.cumsum(begins) - 1]
    return result, failed
