"""What must have happened: the definitions' history, walked stretch by stretch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from coordinator.rules import Rule, rule_of
from cronstream.schedule import ScheduleError

# One entry a commit: its time and the columns from then on; None: deleted.
History = list[tuple[int, Mapping[str, Any] | None]]


def stretches(history: History) -> list[tuple[Rule, int, int | None]]:
    """(rule, begins, ends): its times lie after ``begins`` and up to ``ends``."""
    result = []
    anchor_us: int | None = None
    every: object = object()
    for index, (commit_us, columns) in enumerate(history):
        ends_us = history[index + 1][0] if index + 1 < len(history) else None
        rule = Rule(None)
        if columns is not None:
            if columns["every_us"] != every:
                anchor_us = commit_us
            every = columns["every_us"]
            try:
                rule = rule_of(columns, anchor_us)
            except ScheduleError:
                rule = Rule(None)
        result.append((rule, commit_us, ends_us))
    return result


def due_times(history: History, now_us: int) -> list[int]:
    """Every scheduled time up to now; of those in a pause, a single time that an edit found passed."""
    times = [at for at in _single_times_in_pauses(history) if at <= now_us]
    for rule, begins_us, ends_us in stretches(history):
        until_us = now_us if ends_us is None else min(ends_us, now_us)
        instant = rule.next_after(begins_us)
        while instant is not None and instant <= until_us:
            times.append(instant)
            instant = rule.next_after(instant)
    return sorted(times)


def _single_times_in_pauses(history: History) -> Iterator[int]:
    for (commit_us, columns), (ends_us, _) in pairwise(history):
        if columns is not None and not columns["enabled"] and columns["run_at_us"] is not None:
            try:
                at = rule_of({**columns, "enabled": True}, None).next_after(commit_us)
            except ScheduleError:
                continue
            if at is not None and at <= ends_us:
                yield at


def next_time(history: History, now_us: int) -> int | None:
    """The scheduled time after now."""
    rule, begins_us, _ = stretches(history)[-1]
    return rule.next_after(max(now_us, begins_us))


def allowed(history: History, scheduled_us: int) -> Iterator[int]:
    """The indices of the stretches that name this time after they began, whether or not they had ended."""
    for index, (rule, begins_us, _) in enumerate(stretches(history)):
        if scheduled_us > begins_us and rule.next_after(scheduled_us - 1) == scheduled_us:
            yield index
