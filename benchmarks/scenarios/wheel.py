"""The wheel alone: bytes an entry, arming and popping, and what a tick costs as entries grow."""

from __future__ import annotations

import time

import numpy as np

from benchmarks import plots
from benchmarks.measure import median
from benchmarks.report import Report
from benchmarks.scale import jobs as scaled
from benchmarks.tables import table
from coordinator.wheel import Wheel

_NOW_US = 1_796_000_000_000_000
_SECOND = 1_000_000
_SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
_DUE = 1_000
_BURST = 250_000
_FIGURES = ("bytes", "arm_m_per_s", "arm_many_m_per_s", "idle_tick_us", "due_entry_us", "burst_pop_arm_ms")


def run(report: Report, *, full: bool) -> None:
    """One process, one core, no servers."""
    rows = []
    costs: dict[int, tuple[float, float]] = {}
    sizes = [scaled(size, least=1_000) for size in _SIZES]
    for size in sizes:
        found = _measure(size)
        costs[size] = (found["idle_tick_us"], found["due_entry_us"])
        rows.append((f"{size:,}", *(found.get(key) for key in _FIGURES)))
        report.update(f"wheel.{size}", found)
    table(
        "wheel",
        f"the wheel, entries due over the next five minutes; {_DUE:,} due at once of each size",
        ("entries", "bytes each", "arm M/s", "arm_many M/s", "idle tick us", "due entry us", "burst pop+arm ms"),
        rows,
    )
    least, most = costs[sizes[0]], costs[sizes[-1]]
    report.set("wheel_bytes_an_entry", found["bytes"])
    report.set("idle_tick_ratio_10m", most[0] / least[0])
    report.set("due_entry_ratio_10m", most[1] / least[1])
    plots.cost_per_tick(costs)


def _measure(size: int) -> dict[str, float]:
    draw = np.random.default_rng(1)
    # 1 to 300 s ahead, so that nothing is due while idle ticks are timed.
    at = _NOW_US + 60 * _SECOND + draw.integers(0, 240 * _SECOND, size)
    wheel = Wheel(_NOW_US, capacity=size)
    slots = draw.permutation(size).astype(np.int32)
    began = time.perf_counter()
    wheel.arm_many(slots, at)
    many = size / (time.perf_counter() - began) / 1e6
    found = {"bytes": wheel.nbytes() / size}
    singles = list(zip(slots[:50_000].tolist(), at[:50_000].tolist(), strict=True))
    began = time.perf_counter()
    for slot, at_us in singles:
        wheel.arm(slot, at_us)
    found["arm_m_per_s"] = len(singles) / (time.perf_counter() - began) / 1e6
    found["arm_many_m_per_s"] = many
    found["idle_tick_us"], now_us = _idle(wheel)
    found["due_entry_us"], now_us = _due(wheel, size, now_us, draw)
    if size >= _BURST:
        found["burst_pop_arm_ms"] = _burst(wheel, size, now_us)
    return found


def _idle(wheel: Wheel) -> tuple[float, int]:
    """The cost of a tick with nothing due, and the instant reached: 40 s in steps of 2 ms."""
    now_us, costs = _NOW_US, []
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(1000):
            now_us += 2000
            wheel.pop_due(now_us)
        costs.append((time.perf_counter() - began) / 1000 * 1e6)
    return median(costs), now_us


def _due(wheel: Wheel, size: int, now_us: int, draw: np.random.Generator) -> tuple[float, int]:
    """Pop a thousand random slots that fall due together and arm them again, for each of them."""
    costs = []
    for _ in range(30):
        chosen = draw.choice(size, _DUE, replace=False).astype(np.int32)
        wheel.arm_many(chosen, np.full(_DUE, now_us + 1000, np.int64))
        now_us += 2000
        began = time.perf_counter()
        due = wheel.pop_due(now_us)
        wheel.arm_many(due, np.full(len(due), now_us + 200 * _SECOND, np.int64) + due)
        costs.append((time.perf_counter() - began) / _DUE * 1e6)
        assert len(due) == _DUE
    return median(costs), now_us


def _burst(wheel: Wheel, size: int, now_us: int) -> float:
    slots = np.random.default_rng(2).permutation(size)[:_BURST].astype(np.int32)
    wheel.arm_many(slots, np.full(_BURST, now_us + 1000, np.int64))
    began = time.perf_counter()
    due = wheel.pop_due(now_us + 2000)
    wheel.arm_many(due, np.full(len(due), now_us + 250 * _SECOND, np.int64))
    assert len(due) == _BURST
    return (time.perf_counter() - began) * 1000
