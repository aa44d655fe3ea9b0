"""The overlap policy: runs of a job that asks for it never run side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.faults.events import Outcome
from tests.faults.history import History
from tests.faults.judges.breach import Breach
from tests.faults.oracle import Expected

PROMISE = "NoOverlap"
WITH_AN_END = frozenset({"succeeded", "failed", "timed_out"})
# The next run may be told of the end before the worker's clock has counted the last millisecond.
SLACK_US = 2_000


def no_overlap(history: History, expected: Expected) -> Iterator[Breach]:
    """What workers say of begin and end. A lost attempt has no end that anybody knows."""
    alone = {
        job_id
        for job_id, versions in expected.versions.items()
        if all(v.rule is None or v.rule.overlap_policy != "allow" for v in versions)
    }
    stretches: dict[int, list[Outcome]] = defaultdict(list)
    for outcome in history.of(Outcome):
        if outcome.job_id in alone and outcome.how in WITH_AN_END and outcome.finished_us is not None:
            stretches[outcome.job_id].append(outcome)
    for outcomes in stretches.values():
        for first, second in pairwise(sorted(outcomes, key=lambda outcome: outcome.started_us)):
            assert first.finished_us is not None
            if second.run != first.run and second.started_us < first.finished_us - SLACK_US:
                what = f"began {first.finished_us - second.started_us} us before the run of {first.scheduled_us} ended"
                yield Breach(PROMISE, what, *second.run)
