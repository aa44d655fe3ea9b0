"""How many triggers a minute the real fleet brings over the next day: as text and as a picture.

This is a forecast, not the audit: it asks the product's own schedules.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from cronstream.clock import DAY, MINUTE, to_datetime
from cronstream.schedule import ScheduleError, schedule_of
from demo.fleet import RealJob

MINUTES = 24 * 60
_COLUMNS = 96
_ROWS = 6
_BLOCKS = " ▁▂▃▄▅▆▇█"


def per_minute(fleet: Sequence[RealJob], from_us: int) -> list[int]:
    """Triggers in each of the next 1,440 minutes; intervals counted from ``from_us``."""
    counts = [0] * MINUTES
    until_us = from_us + DAY
    for job in fleet:
        try:
            schedule = schedule_of(
                cron=job.cron,
                every_us=None if job.every is None else job.every // timedelta(microseconds=1),
                anchor_us=from_us,
                tenant=job.tenant,
                name=job.name,
            )
        except ScheduleError:
            continue  # a parked job: 30 February
        at = schedule.next_after(from_us)
        while at is not None and at < until_us:
            counts[(at - from_us) // MINUTE] += 1
            at = schedule.next_after(at)
    return counts


def drawing(counts: Sequence[int], from_us: int) -> list[str]:
    """Lines of text: a column for each quarter of an hour, as high as its busiest minute."""
    width = len(counts) // _COLUMNS
    peaks = [max(counts[column * width : (column + 1) * width]) for column in range(_COLUMNS)]
    top = max(peaks) or 1
    lines = []
    for row in range(_ROWS - 1, -1, -1):
        eighths = (round(peak / top * _ROWS * 8) - row * 8 for peak in peaks)
        label = f"{top:>5} " if row == _ROWS - 1 else f"{0:>5} " if row == 0 else " " * 6
        lines.append(label + "".join(_BLOCKS[min(max(eighth, 0), 8)] for eighth in eighths))
    hours = range(0, 24, 3)
    ticks = "".join(f"{to_datetime(from_us + hour * 60 * MINUTE):%H:%M}".ljust(_COLUMNS // 8) for hour in hours)
    return [*lines, " " * 6 + ticks.rstrip() + " UTC"]


def summary(counts: Sequence[int], jobs: int) -> str:
    """The figures in a sentence."""
    return (
        f"{jobs:,} jobs, {sum(counts):,} triggers over the next 24 hours: {sum(counts) / len(counts):.1f} a minute, "
        f"{max(counts):,} in the busiest"
    )


def save_png(counts: Sequence[int], from_us: int, jobs: int, file: Path) -> None:
    """The same as a picture."""
    file.parent.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MPLCONFIGDIR", str(file.parent / "matplotlib"))
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import dates as typed_dates
    from matplotlib import pyplot

    # Its annotations know no dates on an axis.
    axes: Any
    dates: Any = typed_dates
    figure, axes = pyplot.subplots(figsize=(12, 4), dpi=120, layout="constrained")
    instants = [to_datetime(from_us + minute * MINUTE) for minute in range(len(counts))]
    axes.fill_between(instants, counts, step="post", color="#2a6f97", alpha=0.35, linewidth=0)
    axes.step(instants, counts, where="post", color="#013a63", linewidth=0.8)
    axes.set_title(summary(counts, jobs), loc="left", fontsize=11)
    axes.set_ylabel("triggers per minute")
    axes.set_xlim(instants[0], to_datetime(from_us + len(counts) * MINUTE))
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(dates.HourLocator(byhour=range(0, 24, 3)))
    axes.xaxis.set_major_formatter(dates.DateFormatter("%H:%M", tz=instants[0].tzinfo))
    axes.set_xlabel("UTC")
    axes.grid(visible=True, axis="y", alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(file)
    pyplot.close(figure)
