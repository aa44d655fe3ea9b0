"""NeverEarly: no trigger before its scheduled time, by the database's clock."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.events import Execution, Trigger
from tests.faults.history import History
from tests.faults.judges.breach import Breach
from tests.faults.oracle import Expected


def never_early(history: History, expected: Expected) -> Iterator[Breach]:
    """Neither published nor called before its time. A backfill may run future times: only its own are let off."""
    for trigger in history.of(Trigger):
        if trigger.request_id == 0 and trigger.published_us < trigger.scheduled_us:
            early = trigger.scheduled_us - trigger.published_us
            yield Breach("NeverEarly", f"published {early} us early", trigger.job_id, trigger.scheduled_us)
    for call in history.of(Execution):
        if call.request_id == 0 and call.at_us < call.scheduled_us:
            yield Breach("NeverEarly", f"ran {call.scheduled_us - call.at_us} us early", call.job_id, call.scheduled_us)
