"""EditsTakeEffect: after an edit commits, the old schedule fires at most within the capture lag,
and the new one never for an instant before the commit."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.events import Request, Trigger
from tests.faults.history import History
from tests.faults.judges.breach import Breach
from tests.faults.judges.lag import allowed_lag_us
from tests.faults.oracle import Expected

PROMISE = "EditsTakeEffect"


def edits_take_effect(history: History, expected: Expected) -> Iterator[Breach]:
    """Every trigger is for a time of the definition in force, or of one that ended no longer ago than the lag."""
    requested = {request.request_id for request in history.of(Request)}
    for trigger in history.of(Trigger):
        job_id, at = trigger.job_id, trigger.scheduled_us
        if trigger.request_id:
            if trigger.request_id not in requested:
                yield Breach(PROMISE, f"nobody asked for request {trigger.request_id}", job_id, at)
            continue
        if not expected.from_us < at <= expected.until_us or at in expected.times.get(job_id, {}):
            continue
        ended = [v for v in expected.versions.get(job_id, ()) if v.until_us < at and at in v.times(at - 1, at)]
        if not ended:
            yield Breach(PROMISE, "fired for a time that no definition has", job_id, at)
        elif at - ended[-1].until_us > allowed_lag_us(history, ended[-1].until_us):
            late = (at - ended[-1].until_us) / 1e6
            yield Breach(PROMISE, f"fired by a schedule that had ended {late:.3f} s before", job_id, at)
