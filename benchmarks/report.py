"""The report: flat keys in .local/bench/report.json.

A scenario's keys begin with its name and a dot and are replaced as a whole
when it runs again; the headline keys have no prefix. What was not run is null, and
why a scenario failed is under its name with ``.failed``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from benchmarks.headlines import HEADLINES

FOLDER = Path(".local/bench")
FILE = FOLDER / "report.json"

Value = float | int | str | bool | None


class Report:
    """Collects one run's figures and writes them after each scenario."""

    def __init__(self, *, fresh: bool, file: Path = FILE) -> None:
        self._file = file
        file.parent.mkdir(parents=True, exist_ok=True)
        self._values: dict[str, Value] = {}
        if not fresh and file.exists():
            self._values = json.loads(file.read_text())
        for headline in HEADLINES:
            self._values.setdefault(headline.key, None)

    def begin(self, name: str) -> None:
        """Forget what an earlier run of that scenario said."""
        for key in [key for key in self._values if key.startswith(f"{name}.")]:
            del self._values[key]
        for headline in HEADLINES:
            if headline.scenario == name:
                self._values[headline.key] = None

    def set(self, key: str, value: Value) -> None:
        """One figure; floats keep four significant digits."""
        self._values[key] = float(f"{value:.4g}") if isinstance(value, float) else value

    def update(self, prefix: str, values: Mapping[str, Value]) -> None:
        """Several under one prefix."""
        for key, value in values.items():
            self.set(f"{prefix}.{key}", value)

    def get(self, key: str) -> Value:
        """A figure, or None."""
        return self._values.get(key)

    @property
    def values(self) -> Mapping[str, Value]:
        """All of them."""
        return self._values

    def write(self) -> None:
        """Headline keys first, then the rest by name."""
        order = {headline.key: number for number, headline in enumerate(HEADLINES)}
        keys = sorted(self._values, key=lambda key: (order.get(key, len(order)), key))
        unfinished = self._file.with_suffix(".new")
        unfinished.write_text(json.dumps({key: self._values[key] for key in keys}, indent=1) + "\n")
        unfinished.replace(self._file)
