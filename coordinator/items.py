"""From decisions to items: runs, skips and cancels of single jobs."""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.arrivals import Edit
from coordinator.planning import Plan
from cronstream.bodies import Deleted, Skip, pack, work_of
from cronstream.records import Item, Kind
from cronstream.schedule import Skip as Skipped
from cronstream.skips import INVALID


def owed_items(
    job_id: int, work: bytes, runs: Iterable[int], skips: Iterable[Skipped], run_kind: Kind = Kind.RUN
) -> list[Item]:
    """What a job owed, by scheduled time."""
    whose = work_of(work)
    return _in_order(job_id, work, runs, skips, whose.tenant, whose.name, run_kind)


def edit_items(edit: Edit, plan: Plan, work: bytes) -> list[Item]:
    """What an edit settled, and the end of the job's retries if it is gone."""
    columns = edit.definition or edit.changes[-1].previous or {}
    run_kind = Kind.RUN if plan.rule is None else plan.rule.run_kind
    whose = columns.get("tenant", ""), columns.get("name", "")
    items = _in_order(edit.job_id, work, plan.runs, plan.skips, *whose, run_kind)
    if edit.definition is None:
        items.append(Item(Kind.CANCEL, edit.job_id, edit.changes[-1].committed_us, body=pack(Deleted(*whose))))
    return items


def set_aside(error: object, first_us: int, last_us: int) -> Skipped:
    """Why a job does not run any more until it is edited: nobody can tell its times."""
    return Skipped(f"{INVALID}{error}", first_us, max(first_us, last_us), 1)


def _in_order(
    job_id: int,
    work: bytes,
    runs: Iterable[int],
    skips: Iterable[Skipped],
    tenant: str,
    name: str,
    run_kind: Kind,
) -> list[Item]:
    items = [Item(run_kind, job_id, run_us, body=work) for run_us in runs]
    for skip in skips:
        body = Skip(tenant, name, skip.reason, skip.first_us, skip.last_us, skip.count)
        items.append(Item(Kind.SKIP, job_id, skip.last_us, body=pack(body)))
    return sorted(items, key=lambda item: item.scheduled_us)
