"""Next instants: how many a second beside croniter and cronsim, what compiling costs, how large a form is."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from croniter import croniter
from cronsim import CronSim

from benchmarks.measure import median
from benchmarks.report import Report
from benchmarks.tables import table
from cronstream.schedule import Schedule, compile_cron, next_for_all

COMMON = (
    ("*/5 * * * *", "UTC"),
    ("*/5 * * * *", "America/New_York"),
    ("0 9 * * 1-5", "America/New_York"),
    ("30 2 * * *", "America/New_York"),
    ("0 * * * *", "Europe/Berlin"),
    ("0 0 1 * *", "UTC"),
    ("15 3 * * 0", "Asia/Tokyo"),
    ("0 0 29 2 *", "UTC"),
)
_YEAR_US = 365 * 86_400_000_000
_INSTANTS = 500
_DISTINCT = 10_000


def run(report: Report, *, full: bool) -> None:
    """One process, one core, no servers."""
    draw = random.Random(1)
    start_us = 1_796_000_000_000_000
    instants = [start_us + draw.randrange(_YEAR_US) for _ in range(_INSTANTS)]
    rows, rates, ratios = [], [], []
    for expression, zone in COMMON:
        ours = _per_second(compile_cron(expression, zone).next_after, instants, seconds=0.15)
        sim = _per_second(_cronsim(expression, zone), instants, seconds=0.1)
        iterated = _per_second(_croniter(expression, zone), instants, seconds=0.1)
        rows.append((f"`{expression}`", zone, ours, sim, iterated, ours / sim, ours / iterated))
        rates.append(ours)
        ratios.append(ours / sim)
    table(
        "next_instants",
        "next instant, calls a second on one core",
        ("expression", "zone", "cronstream", "cronsim", "croniter", "x cronsim", "x croniter"),
        rows,
    )
    report.set("next_after_per_s", median(rates))
    report.update("schedule", {"next_after_per_s_least": min(rates), "ratio_to_cronsim": median(ratios)})
    report.set("schedule.ratio_to_croniter", median(row[6] for row in rows))

    distinct = _distinct(_DISTINCT + 1000, draw)
    compile_cron("1 2 3 4 5", "UTC")
    began = time.perf_counter()
    for expression in distinct[_DISTINCT:]:
        compile_cron(expression, "Europe/Berlin")
    compile_us = (time.perf_counter() - began) / 1000 * 1e6
    tracemalloc.start()
    schedules = [Schedule.of(compile_cron(expression, "UTC")) for expression in distinct[:_DISTINCT]]
    form_bytes = tracemalloc.get_traced_memory()[0] / _DISTINCT
    tracemalloc.stop()
    jobs = [draw.choice(schedules) for _ in range(250_000)]
    burst_ms = median(_timed_ms(lambda: next_for_all(jobs, start_us)) for _ in range(5))
    table(
        "compiled_form",
        "compiled form",
        ("what", "value"),
        (
            ("compile, us", compile_us),
            ("bytes each, everything shared counted in", form_bytes),
            ("250,000 jobs over 10,000 schedules, ms", burst_ms),
        ),
    )
    report.update("schedule", {"compile_us": compile_us, "form_bytes": form_bytes, "burst_250k_ms": burst_ms})


def _per_second(call: Callable[[int], object], instants: list[int], seconds: float) -> float:
    best = 0.0
    for _ in range(3):
        done, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < seconds:
            for instant in instants[:50] if not done else instants:
                call(instant)
            done += 50 if not done else len(instants)
        best = max(best, done / elapsed)
    return best


def _cronsim(expression: str, zone: str) -> Callable[[int], object]:
    tz = ZoneInfo(zone)
    return lambda us: next(CronSim(expression, datetime.fromtimestamp(us / 1e6, UTC).astimezone(tz)))


def _croniter(expression: str, zone: str) -> Callable[[int], object]:
    tz = ZoneInfo(zone)
    parsed = croniter(expression, datetime(2026, 1, 1, tzinfo=tz))
    return lambda us: parsed.get_next(datetime, start_time=datetime.fromtimestamp(us / 1e6, UTC).astimezone(tz))


def _distinct(count: int, draw: random.Random) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        days = draw.choice(("*", "1-5", "0", "1,3,5"))
        found[
            f"{draw.randrange(60)} {draw.randrange(24)} {draw.choice(('*', str(draw.randrange(1, 29))))} * {days}"
        ] = None
    return list(found)


def _timed_ms(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000
