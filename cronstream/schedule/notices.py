"""Legal but surprising: sentences for the user who defines a schedule, as SQL's NOTICE or a preview's remark.

The definition succeeds all the same. Four things surprise people: two restricted day fields
that are joined by OR, a step as long as its field, one that does not divide it, and a wall time
that the next change of the zone's clock skips.
"""

from __future__ import annotations

from cronstream.schedule.compiled import SECOND_US, CompiledCron, compile_cron
from cronstream.schedule.grammar import parse
from cronstream.schedule.instants import clock_text, date_text, utc_text
from cronstream.schedule.tzif import DAY

_LOOK_AHEAD = 366 * DAY


def notices_of(
    expr: object,
    zone: object,
    *,
    now_us: int,
    dst_gap: object = "auto",
    dst_overlap: object = "auto",
    hash_key: str = "",
) -> tuple[str, ...]:
    """What to tell the user about a cron expression; ScheduleError when it is none."""
    compiled = compile_cron(expr, zone, dst_gap=dst_gap, dst_overlap=dst_overlap, hash_key=hash_key)
    return parse(expr).notices + _gap_notices(compiled, now_us)


def _gap_notices(compiled: CompiledCron, now_us: int) -> tuple[str, ...]:
    name = compiled.zone.name
    if compiled.next_after(now_us) is None:
        return (f"no time it names exists in {name} any more: it never fires again",)
    now = now_us // SECOND_US
    gap = compiled.zone.next_gap(now, now + _LOOK_AHEAD)
    if gap is None or compiled.every_hour():
        return ()
    at, before, after = gap
    wall = compiled.skipped_wall(at, before, after)
    if wall is None:
        return ()
    if compiled.shift:
        effect = f"fires at {clock_text(at + after)} instead, {utc_text(at * SECOND_US)} (dst_gap)"
    else:
        effect = "does not fire for it (dst_gap)"
    jump = f"clocks go from {clock_text(at + before)} to {clock_text(at + after)}"
    return (f"{clock_text(wall)} does not exist on {date_text(wall)} in {name}, where {jump}: the job {effect}",)
