"""An edit, planned: what is published, stored and held of it. One that cannot be planned is set aside alone."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from coordinator.arrivals import Edit, Job
from coordinator.items import set_aside
from coordinator.planning import Plan, replan
from coordinator.rules import Rule, packed_work
from coordinator.writer import PlanRow

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PlannedEdit:
    """An edit and what it comes to, on top of the row's ``version``."""

    edit: Edit
    version: int
    plan: Plan
    work: bytes

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


def planned_edit(
    edit: Edit, next_us: int | None, version: int, anchor_us: int | None, now_us: int, settled_us: int
) -> PlannedEdit:
    """Plan an edit of a job that stands at ``next_us``, ``version`` and ``anchor_us``; never raises."""
    try:
        plan = replan(
            edit.changes,
            edit.definition,
            next_us=next_us,
            anchor_us=anchor_us,
            now_us=now_us,
            settled_us=settled_us,
        )
        work = b"" if edit.definition is None else packed_work(edit.definition)
    except Exception as error:
        log.exception("An edit cannot be planned; its job is set aside", extra={"job_id": edit.job_id})
        rule = None if edit.definition is None else Rule(None)
        at_us = edit.changes[-1].committed_us
        first_us = at_us if next_us is None else min(next_us, at_us)
        plan = Plan(skips=[set_aside(repr(error), first_us, at_us)], anchor_us=anchor_us, rule=rule)
        work = b""
    return PlannedEdit(edit, version, plan, work)
