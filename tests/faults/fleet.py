"""The jobs of a run: every second to hourly, several zones, every policy; chosen by the seed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from cronstream.clock import to_datetime
from tests.faults.events import Rule
from tests.faults.oracle import SECOND
from tests.faults.zones import BACK, FORWARD

ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "Asia/Kathmandu")
CHANGE_NIGHT = (
    "* * * * *",
    "* 1,2 * * *",
    "*/2 2 * * *",
    "58,59 1 * * *",
    "1 2 * * *",
    "0-59 1-2 * * *",
    "30 58 1 * * *",
)
"""Wildcard jobs and fixed ones, around 02:00 by the clocks of the two zones that change."""
MISFIRES = ("FIRE_NOW", "SKIP", "CATCH_UP")
GRACES = (1, 2, 5, 60)


@dataclass(frozen=True)
class Job:
    """A definition to insert: its name says the group it belongs to."""

    name: str
    rule: Rule

    def columns(self, target: str) -> dict[str, Any]:
        """The row, as a user would write it; ``target`` is the receiver's address."""
        rule = self.rule
        return {
            "name": self.name,
            "handler": "http",
            "payload": json.dumps({"url": f"{target}/{rule.answers}"}),
            **schedule_columns(rule),
            "misfire_policy": rule.misfire_policy,
            "misfire_grace": f"{rule.grace_us} microseconds",
            "catch_up_limit": rule.catch_up_limit,
            "overlap_policy": rule.overlap_policy,
            "max_attempts": rule.max_attempts,
            "backoff_seconds": rule.backoff_seconds,
            "backoff_factor": rule.backoff_factor,
            "jitter": rule.jitter,
            "timeout_seconds": rule.timeout_seconds,
        }


def schedule_columns(rule: Rule) -> dict[str, Any]:
    """The columns that say when it fires."""
    return {
        "cron": rule.cron,
        "every": None if rule.every_us is None else f"{rule.every_us} microseconds",
        "run_at": None if rule.run_at_us is None else instant(rule.run_at_us),
        "timezone": rule.timezone,
        "enabled": rule.enabled,
    }


def instant(at_us: int) -> str:
    """As SQL reads it, exact to the microsecond."""
    return to_datetime(at_us).isoformat()


def fleet(random: Random, begins_us: int, minutes: float, scale: float = 1.0) -> Iterator[Job]:
    """About 2,300 jobs and 100 runs a second at scale 1."""

    def many(count: int) -> range:
        return range(max(1, round(count * scale)))

    def misfire(**more: Any) -> dict[str, Any]:
        policy = random.choice(MISFIRES)
        return {"misfire_policy": policy, "grace_us": random.choice(GRACES) * SECOND, "catch_up_limit": 3, **more}

    for number in many(40):
        yield Job(f"second-{number}", Rule(every_us=SECOND, **misfire(misfire_policy=MISFIRES[number % 3])))
    for number in many(160):
        yield Job(f"seconds-{number}", Rule(every_us=random.randint(2, 30) * SECOND, **misfire()))
    for number in many(60):
        step = random.choice((2, 3, 5, 10, 15))
        rule = Rule(cron=f"*/{step} * * * * *", timezone=random.choice(ZONES), **misfire())
        yield Job(f"cron-seconds-{number}", rule)
    for number in many(300):
        yield Job(f"cron-minutes-{number}", Rule(cron=_minutely(random), timezone=random.choice(ZONES), **misfire()))
    for number in many(1000):
        yield Job(f"every-minute-{number}", Rule(cron="* * * * *"))
    for number in many(700):
        yield Job(f"hourly-{number}", Rule(cron=f"{random.randint(0, 59)} * * * *", timezone=random.choice(ZONES)))
    for number in many(60):
        at_us = begins_us + random.randrange(60, max(61, round(minutes * 60))) * SECOND + random.randrange(SECOND)
        yield Job(f"once-{number}", Rule(run_at_us=at_us, **misfire()))
    for zone in (FORWARD, BACK):
        for cron in CHANGE_NIGHT:
            yield Job(f"change-{zone}-{cron}", Rule(cron=cron, timezone=zone))
    for number in many(30):
        yield Job(f"fails-{number}", _failing(random))
    for number in many(6):
        rule = Rule(every_us=20 * SECOND, answers="slow/4000", timeout_seconds=1.0, max_attempts=2, backoff_seconds=1.0)
        yield Job(f"hangs-{number}", rule)
    for number in many(8):
        policy, takes = (("queue", 700), ("skip", 2500))[number % 2]
        yield Job(f"overlaps-{number}", Rule(every_us=2 * SECOND, answers=f"slow/{takes}", overlap_policy=policy))


def _minutely(random: Random) -> str:
    return random.choice(
        (
            f"*/{random.choice((1, 2, 3, 5))} * * * *",
            f"{random.randint(0, 59)},{random.randint(0, 59)} * * * *",
            f"{random.randint(0, 29)}-{random.randint(30, 59)}/{random.choice((1, 2, 7))} * * * *",
            f"{random.randint(0, 59)} */2 * * 0-6",
            f"{random.randint(0, 59)} {random.randint(0, 59)} * 1-31 * *",
        )
    )


def _failing(random: Random) -> Rule:
    """One in three fails to the end; the others succeed at the second or third try."""
    times = random.choice((1, 2, 9))
    return Rule(
        every_us=random.randint(8, 20) * SECOND,
        answers=f"fail/{times}",
        max_attempts=3,
        backoff_seconds=1.0,
        backoff_factor=2.0,
        jitter=random.choice(("none", "equal", "full")),
    )


def edited(random: Random, rule: Rule) -> Rule:
    """Another definition of a job: a new schedule, a pause or its end, a new policy, or none of it changed."""
    if not rule.enabled:
        return msgspec.structs.replace(rule, enabled=True)
    kind = random.choice(("every", "every", "cron", "pause", "policy", "same"))
    if kind == "every":
        return msgspec.structs.replace(rule, every_us=random.randint(1, 20) * SECOND, cron=None)
    if kind == "cron":
        cron = f"*/{random.choice((1, 2, 4, 6, 10))} * * * * *"
        return msgspec.structs.replace(rule, cron=cron, every_us=None, timezone=random.choice(ZONES))
    if kind == "pause":
        return msgspec.structs.replace(rule, enabled=False)
    if kind == "policy":
        return msgspec.structs.replace(rule, misfire_policy=random.choice(MISFIRES))
    return rule
