"""AttemptsBounded: at most max_attempts starts, then a dead letter; delays follow the policy."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.events import DeadLetter, Outcome, Retry, Rule, Run
from tests.faults.history import History
from tests.faults.judges.breach import Breach
from tests.faults.oracle import Expected

PROMISE = "AttemptsBounded"
TRIED_AGAIN = frozenset({"failed", "timed_out", "lost"})
# Two clocks' worth: the worker's when it ended, the target's when it was called again.
SLACK_US = 5_000


def attempts_bounded(history: History, expected: Expected) -> Iterator[Breach]:
    """Attempts are numbered on, each after the end of the one before it and no sooner than its delay."""
    numbers: dict[Run, set[int]] = {}
    for attempt in history.admitted:
        numbers.setdefault(attempt.run, set()).add(attempt.attempt)
    ended = {(o.run, o.attempt): o for o in history.of(Outcome) if o.how != "started"}
    lost = {(outcome.run, outcome.attempt) for outcome in history.of(Outcome) if outcome.how == "lost"}
    last_seen = {(retry.run, retry.attempt): retry for retry in history.of(Retry)}
    letters = {letter.run for letter in history.of(DeadLetter)}
    for run, taken in numbers.items():
        rules = [v.rule for v in expected.versions.get(run[0], ()) if v.rule is not None]
        if not rules:
            continue
        most = max(rule.max_attempts for rule in rules)
        if max(taken) > most:
            yield Breach(PROMISE, f"attempt {max(taken)} of at most {most}", *run)
        for number in sorted(taken - {1}):
            before = history.ends[run].get(number - 1)
            # A worker that was cut off is taken for dead, and what it reports afterwards comes too late.
            if before not in TRIED_AGAIN and (run, number - 1) not in lost:
                yield Breach(PROMISE, f"attempt {number} though attempt {number - 1} {before or 'has no end'}", *run)
            yield from _too_soon(history, run, number, ended.get((run, number - 1)), rules)
        last = history.ends[run].get(max(taken))
        if last in TRIED_AGAIN and run not in letters and not _cancelled(expected, run):
            retry = last_seen.get((run, max(taken) + 1))
            where = f"retry last seen in {retry.topic}[{retry.partition}] at {retry.offset}" if retry else "no retry"
            yield Breach(PROMISE, f"no end after attempt {max(taken)} ({last}): no dead letter, {where}", *run)


def least_delay_us(rule: Rule, failed_attempt: int) -> int:
    """The shortest time from the end of a failed attempt to the next one, jitter taken off."""
    whole = min(rule.backoff_seconds * rule.backoff_factor ** (failed_attempt - 1), 3600.0)
    return round(whole * {"none": 1.0, "equal": 0.5, "full": 0.0}[rule.jitter] * 1e6)


def _too_soon(history: History, run: Run, number: int, before: Outcome | None, rules: list[Rule]) -> Iterator[Breach]:
    if before is None or before.how == "lost" or before.finished_us is None:
        return
    least = min(least_delay_us(rule, number - 1) for rule in rules)
    for call in history.executed.get(run, ()):
        waited = call.at_us - before.finished_us
        if call.attempt == number and waited < least - SLACK_US:
            yield Breach(PROMISE, f"attempt {number} came after {waited} us, {least} us were due", *run)


def _cancelled(expected: Expected, run: Run) -> bool:
    """A deleted job's retries end with it."""
    versions = expected.versions[run[0]]
    return versions[-1].rule is None
