"""Steps of requests, waiting their turn at the dispatcher: at bounded rates, after all that is due.

Two lanes: what somebody waits for (run-nows, redrives), and backfills, which may be long and
never hold the others up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from coordinator.allowance import Allowance
from coordinator.requests import DELETED, Step
from cronstream.settings import CoordinatorSettings

_ITEMS_AT_ONCE = 200
"""On-time work waits no longer than it takes to publish so many."""


class RequestQueue:
    """One thread owns it: the dispatcher's. Instants in microseconds, by the database's clock."""

    def __init__(self, settings: CoordinatorSettings, now_us: int) -> None:
        self._lanes = [
            (deque[Step](), Allowance(settings.catch_up_per_second, now_us)),
            (deque[Step](), Allowance(settings.backfill_per_second, now_us)),
        ]

    def __len__(self) -> int:
        return sum(len(steps) for steps, _ in self._lanes)

    def add(self, steps: Iterable[Step]) -> None:
        """Steps that were read just now, each behind those of its lane."""
        for step in steps:
            self._lanes[step.backfill][0].append(step)

    def delete(self, job_id: int) -> None:
        """The job is gone: what waits of its requests is not published any more."""
        for steps, _ in self._lanes:
            for index, step in enumerate(steps):
                if step.job_id == job_id:
                    steps[index] = step.cancelled(DELETED)

    def take(self, now_us: int) -> list[Step]:
        """The steps whose turn it is."""
        taken: list[Step] = []
        for steps, allowance in self._lanes:
            left, items = allowance.left(now_us), 0
            while steps and items < min(left, _ITEMS_AT_ONCE):
                items += len(steps[0].items)
                taken.append(steps.popleft())
            allowance.spend(items)
        return taken

    def wait_seconds(self) -> float | None:
        """Until the next step's turn; None when none waits."""
        return min((allowance.wait_seconds() for steps, allowance in self._lanes if steps), default=None)
