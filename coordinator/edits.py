"""An edit, planned: what is published, stored and held of it. One that cannot be planned is set aside alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from coordinator.arrivals import Edit, Job
from coordinator.deletions import Deletion
from coordinator.items import edit_items, set_aside
from coordinator.planning import Change, Passed, Plan, replan
from coordinator.rules import Rule, packed_work
from coordinator.writer import NONE, PlanRow
from cronstream.clock import SECOND
from cronstream.records import Item

log = logging.getLogger(__name__)

_NOTHING_PASSED = Passed()


class PassedTimes:
    """Of jobs planned lately: what went out while the edit was on its way, as another may have committed meanwhile."""

    def __init__(self, seconds: float) -> None:
        """Kept for so long: no edit is on its way for longer."""
        self._kept_us = round(seconds * SECOND)
        self._passed: dict[int, Passed] = {}

    def of(self, job_id: int) -> Passed:
        """Of the job's last plan."""
        return self._passed.get(job_id, _NOTHING_PASSED)

    def keep(self, job_id: int, passed: Passed, now_us: int) -> None:
        """In place of what was kept of the job."""
        self._passed.pop(job_id, None)
        if passed.times:
            self._passed[job_id] = passed
        while self._passed:
            oldest, kept = next(iter(self._passed.items()))
            if kept.until_us >= now_us - self._kept_us:
                break
            del self._passed[oldest]


@dataclass(frozen=True, slots=True)
class PlannedEdit:
    """An edit and what it comes to, on top of the row's ``version``."""

    edit: Edit
    version: int
    plan: Plan
    work: bytes
    in_tail: bool = False
    """What the last leader published of the job perhaps stands on the log alone, until this is stored."""

    def items(self) -> list[Item]:
        """What is published."""
        return edit_items(self.edit, self.plan, self.work)

    def deletion(self) -> Deletion | None:
        """A deletion that may wait: nothing but the cancel is to be published, and nothing but it can be forgotten."""
        if self.edit.definition is not None or self.plan.runs or self.plan.skips or self.in_tail:
            return None
        (cancel,) = self.items()
        return Deletion(cancel, self.row())

    def row(self) -> PlanRow:
        """What is stored."""
        edit, plan = self.edit, self.plan
        return PlanRow(
            edit.job_id,
            self.version,
            self.version + 1,
            plan.next_us,
            edit.revision,
            plan.anchor_us,
            edit.definition is None,
            tuple(change.change_id for change in edit.changes),
        )

    def job(self) -> Job | None:
        """What is held, if it has a next time."""
        plan = self.plan
        if plan.rule is None or plan.next_us is None:
            return None
        return Job(self.edit.job_id, plan.next_us, self.version + 1, plan.rule, self.work)


def parted(planned: Sequence[PlannedEdit]) -> tuple[list[PlannedEdit], list[Deletion]]:
    """Those to be published and stored at once, and what of the others waits its turn."""
    deletions = [one.deletion() for one in planned]
    at_once = [one for one, deletion in zip(planned, deletions, strict=True) if deletion is None]
    return at_once, [deletion for deletion in deletions if deletion is not None]


def planned_edit(
    edit: Edit,
    next_us: int | None,
    version: int,
    anchor_us: int | None,
    now_us: int,
    settled_us: int,
    passed: Passed = _NOTHING_PASSED,
) -> PlannedEdit:
    """Plan an edit of a job that stands at ``next_us``, ``version`` and ``anchor_us``; never raises."""
    in_tail = settled_us != NONE
    given: dict[str, Any] = {
        "next_us": next_us,
        "anchor_us": anchor_us,
        "now_us": now_us,
        "settled_us": settled_us,
        "passed": passed,
    }
    try:
        plan, work = _planned(edit.changes, edit.definition, **given)
    except Exception as error:
        log.exception("An edit cannot be planned as it is", extra={"job_id": edit.job_id})
        at_us = edit.changes[-1].committed_us
        first_us = at_us if next_us is None else min(next_us, at_us)
        try:
            # What an unreadable schedule owed nobody can tell, nor which times after the commit went out under it; the
            # present one may be sound.
            settled_us = max(settled_us, min(now_us, at_us if next_us is None else next_us - 1))
            afresh = replace(edit.changes[-1], previous=None)
            plan, work = _planned([afresh], edit.definition, **{**given, "settled_us": settled_us})
        except Exception:
            log.warning("The job of an edit is set aside", extra={"job_id": edit.job_id})
            plan, work = Plan(anchor_us=anchor_us, rule=None if edit.definition is None else Rule(None)), b""
        plan.skips.insert(0, set_aside(repr(error), first_us, at_us))
    return PlannedEdit(edit, version, plan, work, in_tail=in_tail)


def _planned(changes: Sequence[Change], definition: Mapping[str, Any] | None, **given: Any) -> tuple[Plan, bytes]:
    return replan(changes, definition, **given), b"" if definition is None else packed_work(definition)
