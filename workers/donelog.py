"""What is known of attempts that another worker had taken: run, done or lost.

Outcomes are the log of what was done. Whoever takes a partition over reads them
from the committed bound to the end, before it runs anything:

    no item             nobody started it      → run it
    started, no end     its worker died        → report it lost
    an end              it is over             → nothing is left to do
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from cronstream.bodies import PoisonItem, report_of
from cronstream.records import Batch, Kind

Key = tuple[int, int, int, int]
"""job_id, scheduled time, request_id, attempt: what is started at most once."""


class Verdict(Enum):
    """What to do with a redelivered attempt."""

    RUN = "run"
    DONE = "done"
    LOST = "lost"


class DoneLog:
    """The attempts that outcomes speak of."""

    def __init__(self) -> None:
        self.started: dict[Key, bytes] = {}
        """Started and not ended, with what was said of it."""
        self.ended: set[Key] = set()

    def note(self, batch: Batch) -> None:
        """Read one outcomes record. Only a worker's words count: SKIPPED is admission's."""
        keys: Iterable[Key] = zip(
            batch.job_id.tolist(),
            batch.scheduled.tolist(),
            batch.request_id.tolist(),
            batch.attempt.tolist(),
            strict=True,
        )
        for index, (kind, key) in enumerate(zip(batch.kind.tolist(), keys, strict=True)):
            if kind == Kind.STARTED and key not in self.ended:
                self.started[key] = batch.body(index)
            elif Kind.STARTED < kind < Kind.SKIPPED:
                self.ended.add(key)
                self.started.pop(key, None)

    def start(self, key: Key) -> tuple[str, int]:
        """Which worker started a lost attempt, and when; "" and 0 if nobody can say."""
        try:
            report = report_of(self.started[key])
        except PoisonItem:
            return "", 0
        return report.worker, report.started_at


def decide(keys: Iterable[Key], log: DoneLog) -> list[Verdict]:
    """One verdict an attempt."""
    return [_verdict(key, log) for key in keys]


def _verdict(key: Key, log: DoneLog) -> Verdict:
    if key in log.ended:
        return Verdict.DONE
    return Verdict.LOST if key in log.started else Verdict.RUN
