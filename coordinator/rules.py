"""Rules: when a job fires, and what becomes of the times it missed.

A ``Rule`` is built from the columns of a definition, as the database's view
``cronstream.job_rules`` (or a change's ``previous``) gives them: instants and
durations in integer microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cronstream.bodies import Policy, Work, pack
from cronstream.clock import SECOND
from cronstream.records import MAX_BYTES, RUN_KINDS, Kind
from cronstream.schedule import Every, Owed, Schedule, Skip, abandon, owed, schedule_of
from cronstream.schedule import Policy as MisfirePolicy


@dataclass(frozen=True, slots=True)
class Rule:
    """A schedule, its misfire policy and the kind of its runs. Without a schedule the job is paused."""

    schedule: Schedule | None
    misfire_policy: MisfirePolicy = "FIRE_NOW"
    grace_us: int = 60_000_000
    catch_up_limit: int = 100
    run_kind: Kind = Kind.RUN
    """As the overlap policy says."""

    def next_after(self, instant_us: int) -> int | None:
        """The first scheduled time strictly after an instant."""
        return self.schedule.next_after(instant_us) if self.schedule else None

    @property
    def period_us(self) -> int:
        """Between any two times of a plain interval; 0 for every other kind of schedule."""
        schedule = self.schedule
        if not isinstance(schedule, Schedule) or schedule.ends_at_us is not None:
            return 0
        return schedule.source.period_us if isinstance(schedule.source, Every) else 0

    def terms(self) -> Rule:
        """All that it says but for the times; one object for all rules that agree in it."""
        return _terms(self.misfire_policy, self.grace_us, self.catch_up_limit, self.run_kind)

    def every(self, period_us: int, at_us: int) -> Rule:
        """The same for a plain interval, from one of its times on."""
        schedule = Schedule.of(Every(period_us, at_us))
        return Rule(schedule, self.misfire_policy, self.grace_us, self.catch_up_limit, self.run_kind)

    def owed(self, first_us: int, now_us: int, until_us: int | None = None) -> Owed:
        """What becomes of the scheduled times from ``first_us`` (one of them) to now, or ``until_us``."""
        assert self.schedule is not None
        return owed(
            self.schedule,
            first_us,
            now_us,
            policy=self.misfire_policy,
            grace_us=self.grace_us,
            catch_up_limit=self.catch_up_limit,
            until_us=until_us,
        )

    def given_up(self, first_us: int, until_us: int, reason: str) -> tuple[Skip, ...]:
        """The scheduled times from ``first_us`` (one of them) to ``until_us``, recorded as not run."""
        assert self.schedule is not None
        return abandon(self.schedule, first_us, until_us, reason).skips

    def same_times(self, other: Rule | None) -> bool:
        """True if both fire at the same instants, so that an edit from one to the other moves nothing."""
        return other is not None and self.schedule == other.schedule


NO_RULE = Rule(None)


@lru_cache(maxsize=4096)
def _terms(misfire_policy: MisfirePolicy, grace_us: int, catch_up_limit: int, run_kind: Kind) -> Rule:
    return Rule(None, misfire_policy, grace_us, catch_up_limit, run_kind)


def rule_of(columns: Mapping[str, Any], anchor_us: int | None) -> Rule:
    """The rule of a definition's columns; ``anchor_us`` counts for ``every`` without an anchor of its own.

    Raises ScheduleError for a schedule that this version cannot read.
    """
    own_anchor, every_us = columns["anchor_us"], columns["every_us"]
    since_us = anchor_us if own_anchor is None else own_anchor
    by_name = hangs_on_name(columns)
    # What a job has for itself, its anchor, would be a key that never comes twice.
    bounded = columns["starts_at_us"] is not None or columns["ends_at_us"] is not None
    alike = not (every_us is None or since_us is None or bounded or by_name)
    make = _rule if alike or columns["cron"] is not None else _rule.__wrapped__
    rule = make(
        columns["enabled"],
        columns["cron"],
        every_us,
        columns["run_at_us"],
        columns["timezone"],
        0 if alike else since_us,
        columns["starts_at_us"],
        columns["ends_at_us"],
        columns["spread_seconds"],
        columns["dst_gap"],
        columns["dst_overlap"],
        columns["tenant"] if by_name else "",
        columns["name"] if by_name else "",
        columns["misfire_policy"],
        # Publishing takes its milliseconds: a second of lateness is nobody's misfire.
        max(columns["misfire_grace_us"], SECOND),
        columns["catch_up_limit"],
        # A change's ``previous`` does not say: what it still owes runs as the newest definition does.
        RUN_KINDS[columns.get("overlap_policy", "allow")],
    )
    if alike and rule.schedule is not None:
        assert since_us is not None
        return rule.every(every_us, since_us)
    return rule


def hangs_on_name(columns: Mapping[str, Any]) -> bool:
    """Who a job is matters for hashes alone; without them a whole fleet shares its rules."""
    cron = columns["cron"]
    return bool(columns["spread_seconds"]) or (cron is not None and "h" in cron.lower())


@lru_cache(maxsize=65_536)
def _rule(
    enabled: bool,
    cron: str | None,
    every_us: int | None,
    run_at_us: int | None,
    timezone: str,
    anchor_us: int | None,
    starts_at_us: int | None,
    ends_at_us: int | None,
    spread_seconds: int,
    dst_gap: str,
    dst_overlap: str,
    tenant: str,
    name: str,
    misfire_policy: MisfirePolicy,
    grace_us: int,
    catch_up_limit: int,
    run_kind: Kind,
) -> Rule:
    schedule = None
    if enabled:
        schedule = schedule_of(
            cron=cron,
            every_us=every_us,
            run_at_us=run_at_us,
            timezone=timezone,
            anchor_us=anchor_us,
            starts_at_us=starts_at_us,
            ends_at_us=ends_at_us,
            spread_seconds=spread_seconds,
            dst_gap=dst_gap,
            dst_overlap=dst_overlap,
            tenant=tenant,
            name=name,
        )
    return Rule(schedule, misfire_policy, grace_us, catch_up_limit, run_kind)


def work_of_row(columns: Mapping[str, Any]) -> Work:
    """What a definition's runs carry downstream."""
    payload = columns["payload"]
    return Work(
        columns["tenant"],
        columns["name"],
        columns["handler"],
        None if payload is None else payload.encode(),
        policy_of(columns),
    )


def packed_work(columns: Mapping[str, Any]) -> bytes:
    """``work_of_row`` as it travels. Raises ValueError for one that fits no record."""
    # The encoder's own bytes lie in a larger buffer; millions are held.
    return fitting(bytes(memoryview(pack(work_of_row(columns)))))


def fitting(work: bytes) -> bytes:
    """Packed work as given. Raises ValueError for one that fits no record."""
    if len(work) > MAX_BYTES:
        raise ValueError(f"payload has {len(work)} bytes with its policy, more than a record's {MAX_BYTES}")
    return work


def policy_of(columns: Mapping[str, Any]) -> Policy:
    """What a definition says about tries. Raises ValueError for what cannot be meant."""
    return _policy(
        columns["overlap_policy"],
        columns["max_attempts"],
        columns["backoff_seconds"],
        columns["backoff_factor"],
        columns["max_backoff_us"] / 1e6,
        columns["jitter"],
        columns["timeout_seconds"],
    )


_policy = lru_cache(maxsize=4096)(Policy)
