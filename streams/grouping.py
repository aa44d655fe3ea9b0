"""From dead letters to alerts that a person can bear. Pure.

Letters of one job and reason are one group. The first alert of a group waits a moment for more
of it; the next comes a window later, with the count. Where many jobs are in trouble for
one reason, they are one alert together, and so is what follows of that reason.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from streams.letters import DeadLetter

MANY_JOBS = 20
"""So many groups of one reason at once are told together."""
BACKLOG_SECONDS = 10.0
"""How much longer an alert waits while letters that were there before are still being read."""
_SECOND = 1_000_000_000


class Group(NamedTuple):
    """What an alert is about; job_id None: letters of several jobs, or of none that is known."""

    reason: str
    job_id: int | None


@dataclass(slots=True)
class Held:
    """Letters of a group that no alert told of yet."""

    due_ns: int
    example: DeadLetter
    first_at: datetime
    last_at: datetime
    count: int = 0
    begins: dict[int, int] = field(default_factory=dict)
    """By partition of the dead-letter topic, the first of them."""

    def add(self, letter: DeadLetter) -> None:
        """One more."""
        self.count += 1
        self.first_at = min(self.first_at, letter.at)
        self.last_at = max(self.last_at, letter.at)
        self.begins.setdefault(letter.letter_partition, letter.letter_offset)


@dataclass(frozen=True, slots=True)
class Alert:
    """What an operator hears, and where the letters begin that it tells of."""

    body: dict[str, Any]
    begins: dict[int, int]


class Grouping:
    """Holds letters until their alert is due. Instants are boot time, in nanoseconds."""

    def __init__(self, first_seconds: float, window_seconds: float) -> None:
        self._first_ns = round(first_seconds * _SECOND)
        self._window_ns = round(window_seconds * _SECOND)
        self._held: dict[Group, Held] = {}
        self._quiet_until: dict[Group | str, int] = {}
        """Of groups, and of reasons that many jobs shared."""

    def add(self, letter: DeadLetter, now_ns: int) -> None:
        """A letter came."""
        group = Group(letter.reason, letter.job_id)
        held = self._held.get(group)
        if held is None:
            quiet = max(self._quiet_until.get(group, 0), self._quiet_until.get(letter.reason, 0))
            held = Held(max(now_ns + self._first_ns, quiet), letter, letter.at, letter.at)
            self._held[group] = held
        held.add(letter)

    def due(self, now_ns: int, *, caught_up: bool) -> list[Alert]:
        """The alerts whose time has come; what they tell of is not held any more.

        ``caught_up``: all letters that are there were read. Before that alerts wait a little longer, so that a
        backlog is one alert and not one for each read.
        """
        patience = 0 if caught_up else round(BACKLOG_SECONDS * _SECOND)
        due: dict[str, list[tuple[Group, Held]]] = defaultdict(list)
        for group, held in self._held.items():
            if held.due_ns + patience <= now_ns:
                due[group.reason].append((group, held))
        alerts = []
        for reason, groups in due.items():
            for group, _ in groups:
                del self._held[group]
                self._quiet_until[group] = now_ns + self._window_ns
            if len(groups) > MANY_JOBS:
                self._quiet_until[reason] = now_ns + self._window_ns
                alerts.append(_alert(reason, None, groups))
            else:
                alerts += [_alert(reason, group.job_id, [(group, held)]) for group, held in groups]
        self._quiet_until = {what: until for what, until in self._quiet_until.items() if until > now_ns}
        return alerts

    def first_untold(self, partition: int) -> int | None:
        """The first letter of a partition that no alert told of; None if all are told."""
        return min((held.begins[partition] for held in self._held.values() if partition in held.begins), default=None)


def _alert(reason: str, job_id: int | None, groups: list[tuple[Group, Held]]) -> Alert:
    example = groups[0][1].example
    begins: dict[int, int] = {}
    for _, held in groups:
        for partition, offset in held.begins.items():
            begins[partition] = min(offset, begins.get(partition, offset))
    one_job = len(groups) == 1
    filters = f" --reason {reason}" + (f" --job {job_id}" if job_id is not None else "")
    body = {
        # The same for an alert that is sent again after a crash.
        "alert_id": f"{reason}-{job_id or 'many'}-{example.letter_partition}-{example.letter_offset}",
        "kind": "dead_letters",
        "reason": reason,
        "job_id": job_id,
        "tenant": example.tenant if one_job else None,
        "name": example.name if one_job else None,
        "count": sum(held.count for _, held in groups),
        "jobs": len(groups),
        "first_at": min(held.first_at for _, held in groups),
        "last_at": max(held.last_at for _, held in groups),
        "example": {
            "job_id": example.job_id,
            "scheduled_time": example.scheduled_time,
            "attempts": example.attempts,
            "error": example.error,
            "stage": example.stage,
            "record": f"{example.topic}[{example.partition}]@{example.offset}",
        },
        "see": f"cronstream dead-letters list{filters}",
    }
    return Alert(body, begins)
