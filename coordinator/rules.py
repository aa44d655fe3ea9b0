"""Rules: when a job fires, and what becomes of the times it missed.

A ``Rule`` is built from the columns of a definition, as the database's view
``cronstream.job_rules`` (or a change's ``previous``) gives them: instants and
durations in integer microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cronstream.bodies import Policy, Work
from cronstream.clock import SECOND
from cronstream.schedule import Every, Owed, Schedule, Skip, abandon, owed, schedule_of
from cronstream.schedule import Policy as MisfirePolicy


@dataclass(frozen=True, slots=True)
class Rule:
    """A schedule and its misfire policy. Without a schedule the job is paused."""

    schedule: Schedule | None
    misfire_policy: MisfirePolicy = "FIRE_NOW"
    grace_us: int = 60_000_000
    catch_up_limit: int = 100

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


def rule_of(columns: Mapping[str, Any], anchor_us: int | None) -> Rule:
    """The rule of a definition's columns; ``anchor_us`` counts for ``every`` without an anchor of its own.

    Raises ScheduleError for a schedule that this version cannot read.
    """
    schedule = None
    if columns["enabled"]:
        own_anchor = columns["anchor_us"]
        schedule = schedule_of(
            cron=columns["cron"],
            every_us=columns["every_us"],
            run_at_us=columns["run_at_us"],
            timezone=columns["timezone"],
            anchor_us=anchor_us if own_anchor is None else own_anchor,
            starts_at_us=columns["starts_at_us"],
            ends_at_us=columns["ends_at_us"],
            spread_seconds=columns["spread_seconds"],
            dst_gap=columns["dst_gap"],
            dst_overlap=columns["dst_overlap"],
            tenant=columns["tenant"],
            name=columns["name"],
        )
    # Publishing takes its milliseconds: a second of lateness is nobody's misfire.
    grace_us = max(columns["misfire_grace_us"], SECOND)
    return Rule(schedule, columns["misfire_policy"], grace_us, columns["catch_up_limit"])


def work_of_row(columns: Mapping[str, Any]) -> Work:
    """What a definition's runs carry downstream."""
    payload = columns["payload"]
    return Work(
        columns["tenant"],
        columns["name"],
        columns["handler"],
        None if payload is None else payload.encode(),
        Policy(
            columns["overlap_policy"],
            columns["max_attempts"],
            columns["backoff_seconds"],
            columns["backoff_factor"],
            columns["max_backoff_us"] / 1e6,
            columns["jitter"],
            columns["timeout_seconds"],
        ),
    )
