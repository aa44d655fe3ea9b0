"""How large a run is: BENCH_SCALE, 1 unless it is set. At less, the commands are tried out, not the claims."""

from __future__ import annotations

import os

SCALE = float(os.environ.get("BENCH_SCALE", "1"))
_SHORTEST_S = 3.0


def jobs(count: int, *, least: int = 100, scale: float | None = None) -> int:
    """So many jobs, times the scale; never fewer than ``least`` nor more than ``count`` at a scale below 1."""
    scale = SCALE if scale is None else scale
    return max(min(least, count), round(count * scale))


def seconds(full: float, *, scale: float | None = None) -> float:
    """So many seconds; a scale below 1 shortens them to a tenth at most, and to three seconds at least."""
    scale = SCALE if scale is None else scale
    return full if scale >= 1 else min(full, max(_SHORTEST_S, full * max(scale, 0.1)))
