"""NoStaleTerm: once a newer term has fenced a store, nothing older takes effect there."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from tests.faults.events import Trigger
from tests.faults.history import History
from tests.faults.judges.breach import Breach
from tests.faults.oracle import Expected


def no_stale_term(history: History, expected: Expected) -> Iterator[Breach]:
    """On triggers tokens never fall within a partition; nothing admitted came from a record behind a newer token."""
    steps: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for trigger in sorted(history.of(Trigger), key=lambda trigger: (trigger.partition, trigger.offset)):
        rises = steps[trigger.partition]
        if rises and trigger.token < rises[-1][1]:
            what = f"published under token {trigger.token} after {rises[-1][1]}, at offset {trigger.offset}"
            yield Breach("NoStaleTerm", what, trigger.job_id, trigger.scheduled_us)
        elif not rises or trigger.token > rises[-1][1]:
            rises.append((trigger.offset, trigger.token))
    for attempt in history.admitted:
        topic, partition, offset, _ = attempt.source
        if topic != "triggers" or attempt.request_id != 0:
            continue
        rises = steps[partition]
        newest = rises[index - 1][1] if (index := bisect_left(rises, (offset, 0))) else 0
        if attempt.token < newest:
            what = f"admitted under token {attempt.token}, which {newest} had followed"
            yield Breach("NoStaleTerm", what, attempt.job_id, attempt.scheduled_us)
