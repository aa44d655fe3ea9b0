"""One judge for each promise of docs/architecture.md, and what must hold for a verdict to mean anything."""

from __future__ import annotations

from tests.faults.events import Edit, Jump
from tests.faults.history import History
from tests.faults.judges.assumptions import assumptions
from tests.faults.judges.attempts_bounded import attempts_bounded
from tests.faults.judges.breach import Breach, Judge
from tests.faults.judges.edits_take_effect import edits_take_effect
from tests.faults.judges.in_order import in_order
from tests.faults.judges.never_early import never_early
from tests.faults.judges.no_overlap import no_overlap
from tests.faults.judges.no_run_lost import no_run_lost
from tests.faults.judges.no_stale_term import no_stale_term
from tests.faults.judges.one_run import one_run_per_scheduled_time
from tests.faults.judges.requests_run import requests_run
from tests.faults.judges.unknown import outcomes_known
from tests.faults.oracle import Expected

JUDGES: tuple[Judge, ...] = (
    assumptions,
    never_early,
    no_run_lost,
    requests_run,
    one_run_per_scheduled_time,
    no_stale_term,
    in_order,
    no_overlap,
    attempts_bounded,
    edits_take_effect,
    outcomes_known,
)

__all__ = ["JUDGES", "Breach", "expected_of", "judge_all"]


def expected_of(history: History) -> Expected:
    """What the oracle demands of the judged window."""
    return Expected(history.of(Edit), history.window.from_us, history.window.until_us, history.of(Jump))


def judge_all(history: History) -> list[Breach]:
    """Every breach of every promise; none is the promise kept."""
    expected = expected_of(history)
    return [breach for judge in JUDGES for breach in judge(history, expected)]
