"""What follows when a try of a run did not succeed: another, later, or none. Pure.

Everything derives from the outcome itself, jitter included, so whoever is asked again, after a crash or
a year, answers the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from cronstream import dead_letters
from cronstream.bodies import PoisonItem, Policy, Report, work_of
from cronstream.clock import SECOND
from cronstream.records import Item, Kind

UNSUCCESSFUL = frozenset({Kind.FAILED, Kind.TIMED_OUT, Kind.LOST})


@dataclass(frozen=True, slots=True)
class GivenUp:
    """There is no further try: the run becomes a dead letter."""

    reason: str
    error: str


def next_try(item: Item, report: Report, published_at: int) -> Item | GivenUp:
    """The retry after an outcome of ``UNSUCCESSFUL``, published at that instant; or why there is none."""
    error = report.error or item.kind.name.lower()
    if report.work is None:
        return GivenUp(dead_letters.POISON_ITEM, f"nothing was kept to try again; its error: {error}")
    try:
        policy = work_of(report.work).policy
    except PoisonItem as problem:
        return GivenUp(dead_letters.POISON_ITEM, f"what was kept to try again is {problem}; its error: {error}")
    if report.final:
        return GivenUp(dead_letters.FINAL, error)
    if item.attempt >= policy.last_attempt:
        return GivenUp(dead_letters.EXHAUSTED, error)
    ended_at = published_at if report.finished_at is None else report.finished_at
    not_before = ended_at
    if item.kind is not Kind.LOST:
        asked = min(report.retry_after_us or 0, ended_at + _us(policy.max_backoff_seconds))
        not_before = max(ended_at + delay_us(policy, item), asked)
    return Item(
        Kind.RUN, item.job_id, item.scheduled_us, item.request_id, item.attempt + 1, report.work, max(not_before, 1)
    )


def delay_us(policy: Policy, item: Item) -> int:
    """How long the try after ``item`` is put off."""
    longest = _us(backoff_seconds(policy, item.attempt))
    if policy.jitter == "none":
        return longest
    share = _share(item)
    return round(longest * (share if policy.jitter == "full" else (1 + share) / 2))


def backoff_seconds(policy: Policy, attempt: int) -> float:
    """The delay after an attempt before jitter: grown by the factor each time, capped."""
    try:
        grown = policy.backoff_seconds * policy.backoff_factor ** (attempt - policy.first_attempt)
    except OverflowError:
        grown = policy.max_backoff_seconds if policy.backoff_seconds else 0.0
    return min(grown, policy.max_backoff_seconds)


def _share(item: Item) -> float:
    """Of [0, 1), evenly, and always the same for the same attempt of the same run."""
    digest = hashlib.blake2b(f"{item.idempotency_key}/{item.attempt}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


def _us(seconds: float) -> int:
    return round(seconds * SECOND)
