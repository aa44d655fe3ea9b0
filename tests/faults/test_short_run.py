"""The short seeded set, on every change: each family of faults once, no promise broken."""

from __future__ import annotations

import json

from tests.faults.nemesis import SHORT
from tests.faults.run import Plan, run

SEED = 1


def test_no_fault_loses_doubles_or_hastens_a_run() -> None:
    verdict, file = run(Plan(SEED, minutes=9, faults=SHORT, scale=0.5, longest_pause=8, longest_outage=6))
    print(verdict.report())
    print(json.dumps(verdict.line()))
    assert verdict.good, f"judge it again: python -m tests.faults judge {file}\n{verdict.report()}"
    assert verdict.line()["faults"] >= 20
