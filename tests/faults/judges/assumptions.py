"""Judged first: a run in which nothing happened proves nothing."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.events import Fault, Stuck
from tests.faults.history import History
from tests.faults.judges.breach import Breach
from tests.faults.oracle import Expected

LEAST_EXECUTED = 0.5


def assumptions(history: History, expected: Expected) -> Iterator[Breach]:
    """The workload ran, its targets were called, every fault was seen to hit, and the run came to rest."""
    window = history.window
    if not expected.count:
        yield Breach("Assumptions", "nothing was due in the window")
    calls = sum(window.from_us < run[1] <= window.until_us and run[2] == 0 for run in history.executed)
    if calls < expected.count * LEAST_EXECUTED:
        yield Breach("Assumptions", f"only {calls} of {expected.count} runs reached the target")
    for fault in history.of(Fault):
        if not fault.hit:
            yield Breach("Assumptions", f"the fault {fault.name} of {fault.target} did not hit: {fault.detail}")
    for stuck in history.of(Stuck):
        yield Breach("Recovery", stuck.what)
    if not window.settled:
        yield Breach("Assumptions", "the run did not come to rest: something was still owed when it was read")
