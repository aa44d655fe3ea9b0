"""Upcoming scheduled times, for people and for machines.

`upcoming` gives each as an instant, as wall time in the job's zone, and whether a clock change
moved it there. `preview_line` answers one line of JSON with one line of JSON, whatever the line
holds:

    {"id": 1, "expr": "30 2 * * *", "tz": "America/New_York", "after": "2026-03-08T05:00:00Z", "count": 1}
    {"id": 1, "fires": ["2026-03-08T07:00:00Z"]}
    {"id": 2, "every": "PT90S", "anchor": "2026-01-01T00:00:00Z", "after": "2026-01-01T00:00:00Z", "count": 1}
    {"id": 2, "fires": ["2026-01-01T00:01:30Z"]}
    {"id": 3, "expr": null}
    {"id": 3, "error": "cron: NoneType value is not allowed; …"}

`tz` defaults to UTC, `count` to 5, `after` to the given now, `anchor` to `after`; `dst_gap`,
`dst_overlap`, `tenant` and `name` (for H) may be given as in a definition.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple, Never

from cronstream.schedule.compiled import CompiledCron
from cronstream.schedule.errors import ScheduleError, quoted
from cronstream.schedule.instants import local_text, parse_instant, utc_text
from cronstream.schedule.interval import LAST_US, parse_every
from cronstream.schedule.schedule import Schedule, schedule_of
from cronstream.schedule.zones import zone_of

MAX_COUNT = 10_000
_DEFAULT_COUNT = 5


class Fire(NamedTuple):
    """One scheduled time as shown."""

    instant_us: int
    utc: str
    local: str
    moved: bool
    """its own wall time does not exist that day: it fires at the first instant after the gap"""


def upcoming(schedule: Schedule, timezone: object, after_us: int, n: int) -> list[Fire]:
    """The next `n` scheduled times strictly after `after_us`, fewer when the schedule ends."""
    zone = zone_of(timezone)
    source = schedule.source
    fires = []
    for instant in _next_instants(schedule, after_us, n):
        local = local_text(instant, zone.offset_at(instant // 1_000_000))
        moved = isinstance(source, CompiledCron) and source.moved(instant - schedule.offset_us)
        fires.append(Fire(instant, utc_text(instant), local, moved))
    return fires


def _next_instants(schedule: Schedule, after_us: int, n: int) -> list[int]:
    instants: list[int] = []
    following = schedule.next_after(after_us)
    while len(instants) < n and following is not None and following < LAST_US:
        instants.append(following)
        following = schedule.next_after(following)
    return instants


def _text(record: dict[str, Any], field: str) -> str:
    value = record.get(field, "")
    if not isinstance(value, str):
        raise ScheduleError(field, value, "a string")
    return value


def _count(record: dict[str, Any]) -> int:
    count = record.get("count", _DEFAULT_COUNT)
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_COUNT:
        raise ScheduleError("count", str(count) if isinstance(count, int) else count, f"0 to {MAX_COUNT}")
    return count


def _fires(record: dict[str, Any], now_us: int | None) -> list[str]:
    asked = "after" in record or now_us is None
    after_us = parse_instant("after", record.get("after")) if asked else now_us
    assert after_us is not None
    count = _count(record)
    every_us = anchor_us = None
    cron = record.get("expr")
    if record.get("every") is not None:
        every_us = parse_every(record["every"])
        anchor_us = parse_instant("anchor", record["anchor"]) if "anchor" in record else after_us
    elif cron is None:
        raise ScheduleError("cron", cron, "a cron expression in expr, or a duration in every")
    schedule = schedule_of(
        cron=cron,
        every_us=every_us,
        anchor_us=anchor_us,
        timezone=record.get("tz", "UTC"),
        dst_gap=record.get("dst_gap", "auto"),
        dst_overlap=record.get("dst_overlap", "auto"),
        tenant=_text(record, "tenant"),
        name=_text(record, "name"),
    )
    return [utc_text(instant) for instant in _next_instants(schedule, after_us, count)]


def _no_constant(text: str) -> Never:
    raise ValueError(f"{text} is not JSON")


def preview_line(line: str, *, now_us: int | None = None) -> str:
    """The answer to one line, without its newline. Raises nothing, whatever the line holds.

    ``now_us`` stands for an ``after`` that is left out; without it that is an error.
    """
    answer: dict[str, object] = {"id": None}
    try:
        record = json.loads(line, parse_constant=_no_constant)
        if not isinstance(record, dict):
            raise ScheduleError("line", record, "a JSON object with id, expr or every, tz, after, count")
        answer["id"] = record.get("id")
        answer["fires"] = _fires(record, now_us)
    except ScheduleError as error:
        answer["error"] = error.sentence()
    except (ValueError, RecursionError):
        answer["error"] = f"line: {quoted(line)} is not JSON"
    try:
        return json.dumps(answer, allow_nan=False)
    except (ValueError, RecursionError):  # an id such as 1e999
        return json.dumps(answer | {"id": None})
