"""How long an edit may be on its way: what judges of edits allow."""

from __future__ import annotations

from tests.faults.events import Fault
from tests.faults.history import History

USUAL_LAG_US = 20_000_000
AFTER_FAULT_US = 20_000_000


def allowed_lag_us(history: History, committed_us: int) -> int:
    """From the commit of an edit until it must be in force.

    Twenty seconds, which is what the audit needs at most where capture says nothing; with a fault under way then,
    until as long after it was over, and so on while faults follow one another that closely.
    """
    until_us = committed_us + USUAL_LAG_US
    for fault in sorted(history.of(Fault), key=lambda fault: fault.began_us):
        if fault.began_us <= until_us and committed_us <= fault.ended_us + AFTER_FAULT_US:
            until_us = max(until_us, fault.ended_us + AFTER_FAULT_US)
    return until_us - committed_us
