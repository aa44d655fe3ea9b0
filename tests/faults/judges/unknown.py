"""An unknown outcome is no failure, but few may be unknown, and each must have a fault to explain it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.events import Outcome, Run
from tests.faults.history import History
from tests.faults.judges.breach import Breach
from tests.faults.oracle import Expected

PROMISE = "OutcomesKnown"
MOST_UNKNOWN = 0.005
# A consumer group needs a session's end and a rebalance after the fault itself is over.
RECOVERY_US = 30_000_000
LONGEST_US = 5_000_000
"""No target of the workload takes longer to answer."""


def outcomes_known(history: History, expected: Expected) -> Iterator[Breach]:
    """Every admitted run has an end, or a fault was under way when it was to run; at most 0.5 % have none."""
    unknown = unknown_runs(history)
    lost_at: dict[Run, int] = {}
    for outcome in history.of(Outcome):
        lost_at[outcome.run] = max(lost_at.get(outcome.run, 0), outcome.finished_us or outcome.started_us)
    for run in unknown:
        admitted_us = history.first_admitted[run].at_us
        last_us = max(lost_at.get(run, 0), admitted_us + LONGEST_US)
        if not history.in_fault(admitted_us, last_us, after_us=RECOVERY_US):
            yield Breach(PROMISE, "admitted, and nothing is known of its end", *run)
    if len(unknown) > MOST_UNKNOWN * max(1, expected.count):
        yield Breach(PROMISE, f"{len(unknown)} of {expected.count} outcomes are unknown")


def unknown_runs(history: History) -> list[Run]:
    """Admitted runs without an end, or whose last attempt was lost with its worker."""
    unknown = []
    for run in history.first_admitted:
        ends = history.ends.get(run)
        if not ends or ends[max(ends)] == "lost":
            unknown.append(run)
    return unknown
