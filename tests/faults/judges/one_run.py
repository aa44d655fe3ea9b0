"""OneRunPerScheduledTime: a run is admitted once, whatever is published twice, and an attempt is
started once unless its worker died with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.faults.events import Execution, Process, Run
from tests.faults.history import History
from tests.faults.judges.breach import Breach
from tests.faults.oracle import Expected

PROMISE = "OneRunPerScheduledTime"


def one_run_per_scheduled_time(history: History, expected: Expected) -> Iterator[Breach]:
    """One source for each attempt of a run, and one call, unless a worker died between the two."""
    sources: dict[tuple[Run, int], set[tuple[str, int, int, int]]] = defaultdict(set)
    for attempt in history.admitted:
        sources[attempt.run, attempt.attempt].add(attempt.source)
    for (run, number), several in sources.items():
        if len(several) > 1:
            yield Breach(PROMISE, f"attempt {number} was admitted from {sorted(several)}", *run)
    deaths = sorted(p.at_us for p in history.of(Process) if p.node.startswith("worker") and p.why in ("killed", "died"))
    for run, calls in history.executed.items():
        by_attempt: dict[int, list[Execution]] = defaultdict(list)
        for call in calls:
            by_attempt[call.attempt].append(call)
        for number, several_calls in by_attempt.items():
            for first, second in pairwise(several_calls):
                if not any(first.at_us <= death <= second.at_us for death in deaths):
                    apart = (second.at_us - first.at_us) / 1e6
                    yield Breach(PROMISE, f"attempt {number} ran twice, {apart:.3f} s apart", *run)
        if run[2] == 0 and run not in history.first_admitted:
            yield Breach(PROMISE, "ran though it was never admitted", *run)
