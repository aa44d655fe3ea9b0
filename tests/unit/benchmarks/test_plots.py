"""Each picture is drawn, also of little."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import plots


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(plots, "FOLDER", tmp_path)
    return tmp_path


def drawn(folder: Path) -> set[str]:
    files = list(folder.glob("*.png"))
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
    return {file.stem for file in files}


def test_costs_and_latenesses(folder: Path) -> None:
    plots.cost_per_tick({10_000: (0.1, 0.2), 10_000_000: (0.1, 0.3)})
    plots.lateness_cdf({"herd": np.array([0, 900, 20_000], np.int32), "one": np.array([5], np.int32)})
    assert drawn(folder) == {"cost_per_tick", "lateness_cdf"}


def test_what_happened_over_time_also_when_nothing_did(folder: Path) -> None:
    plots.over_time("busy", {100: 5, 102: 7}, [(99.5, 0.1), (101.0, 0.4)], "two seconds")
    plots.over_time("quiet", {}, [], "nothing")
    assert drawn(folder) == {"busy", "quiet"}


def test_retries_and_sizes(folder: Path) -> None:
    plots.retries(np.array([0.1, 0.2]), np.array([1.0, 4.2]), "two jobs")
    plots.sizes_over_time("hour", [0.0, 1.0], {"schedules": [8192.0, 16384.0], "empty": [0.0, 0.0]}, "sizes")
    assert drawn(folder) == {"retries", "hour"}
