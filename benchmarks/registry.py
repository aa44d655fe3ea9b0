"""The scenarios by name, each with the seconds that it may take on a quiet machine, set-up included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from benchmarks.peers import scenario as peers
from benchmarks.report import Report
from benchmarks.scenarios import (
    attempts,
    bulk,
    dispatch,
    edits,
    end_to_end,
    full,
    hour,
    recovery,
    schedule,
    stages,
    steady,
    takeover,
    together,
    wheel,
)


class Run(Protocol):
    """Measures, prints its table and puts its keys into the report."""

    def __call__(self, report: Report, *, full: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Scenario:
    """What runs under a name. ``budget_s``: in the usual run; ``full_budget_s``: where the full one does more."""

    run: Run
    budget_s: float
    full_budget_s: float | None = None
    usual: bool = True
    full: bool = False

    def budget(self, *, full: bool) -> float:
        """The seconds it may take."""
        return self.full_budget_s if full and self.full_budget_s is not None else self.budget_s


SERVERS_S = 25.0
"""Starting the servers, once a run."""

ALL = {
    "schedule": Scenario(schedule.run, 11),
    "wheel": Scenario(wheel.run, 22, full=True),
    "full": Scenario(full.run, 1800, usual=False, full=True),
    "recovery": Scenario(recovery.run, 500, usual=False, full=True),
    "dispatch": Scenario(dispatch.run, 80),
    "burst": Scenario(together.burst, 50),
    "herd": Scenario(together.herd, 60),
    "steady": Scenario(steady.run, 115),
    "takeover": Scenario(takeover.run, 40),
    "edits": Scenario(edits.run, 40),
    "bulk": Scenario(bulk.run, 95, full_budget_s=500, full=True),
    "peers": Scenario(peers.run, 155, full_budget_s=1200, full=True),
    "attempts": Scenario(attempts.run, 105, full_budget_s=200, full=True),
    "stages": Scenario(stages.run, 45),
    "end_to_end": Scenario(end_to_end.run, 38),
    "hour": Scenario(hour.run, 3900, usual=False),
}
"""In the order in which they run: what can be left out, when time runs short, comes late."""
USUAL = tuple(name for name, scenario in ALL.items() if scenario.usual)
FULL = tuple(name for name, scenario in ALL.items() if scenario.full)


def budget_s(names: tuple[str, ...], *, full: bool) -> float:
    """What a run of these may take, servers included."""
    return SERVERS_S + sum(ALL[name].budget(full=full) for name in names)
