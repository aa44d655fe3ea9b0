"""Rules from a definition's columns: what jobs share is read once, what a job has for itself is its own."""

from __future__ import annotations

import pytest

from coordinator.rules import rule_of
from cronstream.schedule import ScheduleError, schedule_of
from tests.unit.coordinator.rows import columns as definition

MINUTE = 60_000_000


@pytest.mark.parametrize(
    "columns",
    [
        {"every_us": MINUTE},
        {"every_us": MINUTE, "anchor_us": 7},
        {"every_us": MINUTE, "starts_at_us": 5 * MINUTE},
        {"every_us": MINUTE, "ends_at_us": 50 * MINUTE},
        {"every_us": MINUTE, "spread_seconds": 30},
    ],
)
@pytest.mark.parametrize("anchor_us", [3, 11 * MINUTE])
def test_an_interval_has_an_anchor_of_its_own(columns: dict[str, int], anchor_us: int) -> None:
    given = definition(**columns)
    expected = schedule_of(
        every_us=MINUTE,
        anchor_us=columns.get("anchor_us", anchor_us),
        starts_at_us=given["starts_at_us"],
        ends_at_us=given["ends_at_us"],
        spread_seconds=given["spread_seconds"],
        tenant=given["tenant"],
        name=given["name"],
    )
    assert rule_of(given, anchor_us).schedule == expected


def test_a_paused_interval_has_no_schedule_and_a_wrong_one_says_why() -> None:
    assert rule_of(definition(every_us=MINUTE, enabled=False), 3).schedule is None
    with pytest.raises(ScheduleError, match="every"):
        rule_of(definition(every_us=1), 3)
