"""The report: flat keys in .local/bench/report.json, and tables for people.

A benchmark's keys begin with its name and a dot and are replaced as a whole
when it runs again; the headline keys have no prefix. What was not run is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

FOLDER = Path(".local/bench")
FILE = FOLDER / "report.json"

Value = float | int | str | bool | None

HEADLINES: dict[str, str] = {
    "next_after_per_s": "schedule",
    "wheel_bytes_an_entry": "wheel",
    "idle_tick_ratio_10m": "wheel",
    "due_entry_ratio_10m": "wheel",
    "wheel_to_ack_per_s": "dispatch",
    "wheel_to_ack_with_writer_per_s": "dispatch",
    "ratio_to_bare_produce": "dispatch",
    "transactional_to_idempotent": "dispatch",
    "burst_p99_ms": "burst",
    "burst_backlog_gone_s": "burst",
    "herd_p99_ms": "herd",
    "steady_p50_ms": "steady",
    "steady_p99_ms": "steady",
    "steady_p999_ms": "steady",
    "steady_leader_cpu_share": "steady",
    "takeover_first_trigger_s": "takeover",
    "takeover_gap_s": "takeover",
    "edit_to_armed_p50_ms": "edits",
    "edit_to_armed_p99_ms": "edits",
    "bulk_update_100k_armed_s": "bulk",
    "bulk_update_due_p99_ms": "bulk",
    "end_to_end_p50_ms": "end_to_end",
    "end_to_end_p99_ms": "end_to_end",
    "dispatch_ratio_to_best_peer": "peers",
    "end_to_end_ratio_to_best_peer": "peers",
    "full_leader_bytes_beside_payload": "full",
    "full_takeover_first_trigger_s": "full",
    "full_horizon_loaded_s": "full",
    "full_steady_p50_ms": "full",
    "full_steady_p99_ms": "full",
    "full_steady_p999_ms": "full",
}
"""Each headline key, and the benchmark that sets it."""


class Report:
    """Collects one run's figures and writes them after each benchmark."""

    def __init__(self, *, fresh: bool) -> None:
        FOLDER.mkdir(parents=True, exist_ok=True)
        self._values: dict[str, Value] = {}
        if not fresh and FILE.exists():
            self._values = json.loads(FILE.read_text())
        for key in HEADLINES:
            self._values.setdefault(key, None)

    def begin(self, name: str) -> None:
        """Forget what an earlier run of that benchmark said."""
        for key in [key for key in self._values if key.startswith(f"{name}.")]:
            del self._values[key]
        for key in [key for key, owner in HEADLINES.items() if owner == name]:
            self._values[key] = None

    def set(self, key: str, value: Value) -> None:
        """One figure; floats keep four significant digits."""
        self._values[key] = float(f"{value:.4g}") if isinstance(value, float) else value

    def update(self, prefix: str, values: dict[str, Value]) -> None:
        """Several under one prefix."""
        for key, value in values.items():
            self.set(f"{prefix}.{key}", value)

    def get(self, key: str) -> Value:
        """A figure, or None."""
        return self._values.get(key)

    def write(self) -> None:
        """Headline keys first, then the rest by name."""
        order = {key: number for number, key in enumerate(HEADLINES)}
        keys = sorted(self._values, key=lambda key: (order.get(key, len(order)), key))
        unfinished = FILE.with_suffix(".new")
        unfinished.write_text(json.dumps({key: self._values[key] for key in keys}, indent=1) + "\n")
        unfinished.replace(FILE)


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; numbers to three significant digits."""
    lines = [list(head), *[[_cell(value) for value in row] for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    print(f"\n{title}")
    for number, line in enumerate(lines):
        cells = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  " + "  ".join(cells).rstrip())
        if number == 0:
            print("  " + "  ".join("-" * width for width in widths))
    print(flush=True)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
