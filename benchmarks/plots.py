"""The report's pictures, as PNG beside it."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from benchmarks.report import FOLDER


def cost_per_tick(costs: Mapping[int, tuple[float, float]]) -> None:
    """Idle tick and due entry, by number of entries."""
    figure, axes = plt.subplots(figsize=(7, 4))
    sizes = list(costs)
    axes.loglog(sizes, [costs[size][0] for size in sizes], "o-", label="a tick with nothing due")
    axes.loglog(sizes, [costs[size][1] for size in sizes], "s-", label="a due entry, popped and armed again")
    axes.set(xlabel="entries in the wheel", ylabel="microseconds", title="Cost per tick")
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, "cost_per_tick")


def lateness_cdf(curves: Mapping[str, npt.NDArray[np.integer]]) -> None:
    """The share of triggers that was acknowledged within a lateness."""
    figure, axes = plt.subplots(figsize=(7, 4))
    for name, late_us in curves.items():
        shares = np.concatenate([np.linspace(0, 0.99, 400), np.linspace(0.99, 1, 200)])
        axes.semilogx(np.maximum(np.quantile(late_us, shares), 1) / 1000, shares, label=f"{name} ({late_us.size:,})")
    axes.set(xlabel="milliseconds from scheduled time to acknowledgement", ylabel="share", title="Lateness")
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, "lateness_cdf")


def over_time(name: str, per_second: Mapping[int, int], backlog: list[tuple[float, float]], title: str) -> None:
    """Triggers a second, and how old the oldest advance is that Postgres has not taken."""
    figure, axes = plt.subplots(figsize=(8, 4))
    if per_second:
        first = min(per_second)
        seconds = range(first, max(per_second) + 1)
        counts = [per_second.get(second, 0) for second in seconds]
        axes.step([second - first for second in seconds], counts, where="post", label="triggers/s")
        other = axes.twinx()
        inside = [(at - first, age) for at, age in backlog if at >= first - 2]
        other.plot([at for at, _ in inside], [age for _, age in inside], "C1", label="oldest advance waits, s")
        other.set_ylabel("seconds")
        other.set_ylim(bottom=0)
        other.legend(loc="upper right")
        axes.legend(loc="upper left")
    axes.set(xlabel="seconds", ylabel="triggers acknowledged in the second", title=title)
    axes.set_ylim(bottom=0)
    _save(figure, name)


def retries(first_s: npt.NDArray[np.floating], second_s: npt.NDArray[np.floating], title: str) -> None:
    """When first attempts that all failed began, and when the second ones did; seconds after the instant."""
    figure, axes = plt.subplots(figsize=(8, 4))
    edges = np.arange(0, max(first_s.max(), second_s.max()) + 0.2, 0.1).tolist()
    axes.hist(first_s, edges, label="first attempts", alpha=0.7)
    axes.hist(second_s, edges, label="second attempts", alpha=0.7)
    axes.set(xlabel="seconds after the instant", ylabel="starts in a tenth of a second", title=title)
    axes.legend()
    _save(figure, "retries")


def sizes_over_time(name: str, minutes: list[float], curves: Mapping[str, list[float]], title: str) -> None:
    """How large tables and indexes are, as a multiple of what they were at first."""
    figure, axes = plt.subplots(figsize=(8, 4))
    for label, sizes in curves.items():
        axes.plot(minutes, [size / max(sizes[0], 1) for size in sizes], "o-", label=label, markersize=3)
    axes.set(xlabel="minutes", ylabel="times its size at first", title=title)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    _save(figure, name)


def _save(figure: Figure, name: str) -> None:
    figure.tight_layout()
    figure.savefig(FOLDER / f"{name}.png", dpi=110)
    plt.close(figure)
