"""The report's headline keys: which scenario sets each, and what is to be reached."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Headline:
    """One flat key of the report. ``goal``: at least or at most so much; None where nothing was promised."""

    key: str
    scenario: str
    goal: float | None = None
    at_most: bool = True

    def reached(self, value: object) -> bool | None:
        """Whether a measured value is good enough; None when there is no value or no goal."""
        if self.goal is None or isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return value <= self.goal if self.at_most else value >= self.goal

    @property
    def wanted(self) -> str:
        """The goal in words."""
        if self.goal is None:
            return ""
        return f"{'at most' if self.at_most else 'at least'} {self.goal:,g}"


def _least(key: str, scenario: str, goal: float) -> Headline:
    return Headline(key, scenario, goal, at_most=False)


HEADLINES = (
    Headline("next_after_per_s", "schedule"),
    Headline("wheel_bytes_an_entry", "wheel"),
    Headline("idle_tick_ratio_10m", "wheel", 1.2),
    Headline("due_entry_ratio_10m", "wheel", 2),
    _least("wheel_to_ack_per_s", "dispatch", 150_000),
    Headline("wheel_to_ack_with_writer_per_s", "dispatch"),
    _least("ratio_to_bare_produce", "dispatch", 0.6),
    Headline("transactional_to_idempotent", "dispatch"),
    Headline("burst_p99_ms", "burst", 250),
    Headline("burst_backlog_gone_s", "burst", 15),
    Headline("herd_p99_ms", "herd", 1000),
    Headline("steady_p50_ms", "steady", 10),
    Headline("steady_p99_ms", "steady", 50),
    Headline("steady_p999_ms", "steady", 250),
    Headline("steady_leader_cpu_share", "steady", 0.5),
    Headline("takeover_first_trigger_s", "takeover", 1),
    Headline("takeover_gap_s", "takeover"),
    Headline("edit_to_armed_p50_ms", "edits"),
    Headline("edit_to_armed_p99_ms", "edits", 250),
    Headline("bulk_update_armed_s", "bulk", 20),
    Headline("bulk_due_p99_ms", "bulk", 500),
    Headline("bulk_capture_missed", "bulk", 0),
    Headline("end_to_end_p50_ms", "end_to_end"),
    Headline("end_to_end_p99_ms", "end_to_end"),
    _least("dispatch_ratio_to_best_peer", "peers", 10),
    _least("admit_per_core_s", "stages", 100_000),
    _least("settle_per_core_s", "stages", 15_000),
    _least("worker_per_core_s", "stages", 10_000),
    _least("sink_rows_per_core_s", "stages", 20_000),
    _least("attempts_end_to_end_per_s", "attempts", 4_000),
    Headline("attempts_ratio_to_best_peer", "attempts"),
    Headline("end_to_end_ratio_to_best_peer", "attempts"),
    Headline("retries_latest_s", "attempts"),
    Headline("full_leader_bytes_beside_payload", "full", 1e9),
    Headline("full_takeover_first_trigger_s", "full", 1),
    Headline("full_horizon_loaded_s", "full", 20),
    Headline("full_steady_p50_ms", "full", 10),
    Headline("full_steady_p99_ms", "full", 50),
    Headline("full_steady_p999_ms", "full", 250),
    Headline("full_schedules_index_growth", "full"),
    Headline("recovery_first_admission_s", "recovery", 30),
    Headline("hour_schedules_index_growth", "hour"),
)
"""In the order in which the report shows them."""


def summary(values: Mapping[str, object], scenarios: Collection[str]) -> list[tuple[object, ...]]:
    """Rows of figure, value, goal and whether it is reached, for what these scenarios set or should have set."""
    said = {True: "yes", False: "no", None: ""}
    return [
        (one.key, values.get(one.key), one.wanted, said[one.reached(values.get(one.key))])
        for one in HEADLINES
        if one.scenario in scenarios
    ]
