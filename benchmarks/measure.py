"""What is measured with: percentiles, processor time, memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.report import Value
from stack import process

_TICKS = os.sysconf("SC_CLK_TCK")
_STEPS = 10_000


def percentiles_ms(late_us: npt.NDArray[np.integer]) -> dict[str, Value]:
    """Percentiles in milliseconds of values in microseconds."""
    if not late_us.size:
        return dict.fromkeys(("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms"))
    p50, p90, p99, p999, most = np.percentile(late_us, [50, 90, 99, 99.9, 100]) / 1000
    return {
        "p50_ms": float(p50),
        "p90_ms": float(p90),
        "p99_ms": float(p99),
        "p999_ms": float(p999),
        "max_ms": float(most),
    }


def cpu_seconds(pid: int, *, children: bool = True) -> float:
    """Processor time of a process, its threads and the children that it has waited for; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11 : 15 if children else 13])) / _TICKS


def family_seconds(pid: int) -> float:
    """Processor time of a process and of all below it, those included that have ended."""
    return sum(cpu_seconds(one) for one in [pid, *(member.pid for member in process.descendants(pid))])


def resident_bytes(pid: int) -> int:
    """What the process holds in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


class Processors:
    """Busy cores between making this and asking: of named processes with all below them, and of all others.

    Others are what neither this process nor anything that it started has spent.
    """

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = pids
        self._began = time.monotonic()
        self._at_start = {name: family_seconds(pid) for name, pid in pids.items()}
        self._strange = _strange_seconds()

    def shares(self) -> dict[str, float]:
        """Cores by name, and under ``others`` what the rest of the machine took."""
        elapsed = time.monotonic() - self._began
        shares = {name: (family_seconds(pid) - self._at_start[name]) / elapsed for name, pid in self._pids.items()}
        shares["others"] = max((_strange_seconds() - self._strange) / elapsed, 0.0)
        return {name: round(share, 3) for name, share in shares.items()}


def _strange_seconds() -> float:
    return busy_seconds() - family_seconds(os.getpid())


def busy_seconds() -> float:
    """Processor time that the whole machine has spent since it was started."""
    values = [int(value) for value in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    return (sum(values[:8]) - values[3] - values[4]) / _TICKS


def pace_ns(rounds: int = 100) -> float:
    """Nanoseconds that a small step of Python takes now, by the middle of some rounds: hours differ."""
    table = dict.fromkeys(range(64), 0)
    took = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        for number in range(_STEPS):
            table[number & 63] += number
        took.append((time.perf_counter_ns() - began) / _STEPS)
    return median(took)


def median(values: Iterable[float]) -> float:
    """The middle one."""
    return float(np.median(list(values)))
