"""What should have fired, and the verdict on what did. Independent of the product.

Nothing of cronstream's own scheduling is used: an interval is counted from the
commit of the statement that set it, a cron of the form ``*/n * * * * *`` fires
at every second of a minute that n divides. Instants are microseconds, UTC, by
the database's clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

SECOND = 1_000_000
MINUTE = 60 * SECOND

Run = tuple[int, int]
"""(job_id, scheduled time)"""


@dataclass(frozen=True, slots=True)
class Rule:
    """What held for a job from one commit (exclusive) to the next (inclusive)."""

    job_id: int
    after_us: int
    until_us: int
    every_seconds: int | None = None
    cron_step: int | None = None

    def instants(self, until_us: int | None = None) -> Iterator[int]:
        """The scheduled times of the rule, or up to another end."""
        end = self.until_us if until_us is None else until_us
        if self.every_seconds is not None:
            step = self.every_seconds * SECOND
            yield from range(self.after_us + step, end + 1, step)
            return
        assert self.cron_step is not None
        for minute in range(self.after_us // MINUTE * MINUTE, end + 1, MINUTE):
            for second in range(0, 60, self.cron_step):
                at = minute + second * SECOND
                if self.after_us < at <= end:
                    yield at


@dataclass(frozen=True, slots=True)
class Arrival:
    """A call of the receiver."""

    key: str
    at_us: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The audit's figures. ``expected`` = ``received`` + ``missed``."""

    expected: int
    received: int
    """Expected runs that arrived, once or more often."""
    missed: tuple[Run, ...]
    duplicated: tuple[Run, ...]
    """One entry for every arrival of a run after its first."""
    early: tuple[Run, ...]
    unexpected: tuple[str, ...]
    """Keys of calls that no definition accounts for."""
    worst_lateness_ms: float

    @property
    def clean(self) -> bool:
        """Nothing was missed, early, run twice or made up."""
        return not (self.missed or self.duplicated or self.early or self.unexpected)


def expected_runs(rules: Iterable[Rule]) -> set[Run]:
    """Every run that the rules demand."""
    return {(rule.job_id, at) for rule in rules for at in rule.instants()}


def tolerated_runs(rules: Iterable[Rule], lag_us: int, end_us: int) -> set[Run]:
    """What a rule that was replaced may still have fired while the edit was on its way."""
    return {
        (rule.job_id, at)
        for rule in rules
        if rule.until_us < end_us
        for at in rule.instants(rule.until_us + lag_us)
        if at > rule.until_us
    }


def run_of(key: str) -> Run | None:
    """The run of an idempotency key (job-scheduled-request); None when it is no scheduled run's."""
    parts = key.split("-")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts) or parts[2] != "0":
        return None
    return int(parts[0]), int(parts[1])


def judge(expected: set[Run], tolerated: set[Run], arrivals: Iterable[Arrival], end_us: int) -> Verdict:
    """Compare. Calls of runs scheduled after ``end_us`` are nobody's business."""
    times: Counter[Run] = Counter()
    early, unexpected, worst_us = [], [], 0
    for arrival in arrivals:
        run = run_of(arrival.key)
        if run is None or (run[1] <= end_us and run not in expected and run not in tolerated):
            unexpected.append(arrival.key)
            continue
        if arrival.at_us < run[1]:
            early.append(run)
        if run[1] > end_us:
            continue
        times[run] += 1
        if times[run] == 1:
            worst_us = max(worst_us, arrival.at_us - run[1])
    missed = sorted(run for run in expected if run not in times)
    return Verdict(
        expected=len(expected),
        received=len(expected) - len(missed),
        missed=tuple(missed),
        duplicated=tuple(run for run, count in sorted(times.items()) for _ in range(count - 1)),
        early=tuple(early),
        unexpected=tuple(unexpected),
        worst_lateness_ms=worst_us / 1000,
    )
