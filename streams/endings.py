"""Outcomes that no worker reports: runs that end without a try. Pure."""

from __future__ import annotations

from cronstream.bodies import PoisonItem, Report, Skip, pack, work_of
from cronstream.records import Item, Kind

JOB_DELETED = "the job was deleted"


def cancelled(item: Item, at_us: int) -> Item:
    """An admitted run whose job was deleted before this try of it could begin."""
    tenant, name = _whose(item)
    report = Report(tenant, name, "", at_us, at_us, at_us, JOB_DELETED)
    return Item(Kind.CANCELLED, item.job_id, item.scheduled_us, item.request_id, item.attempt, pack(report))


def skipped(item: Item, reason: str) -> Item:
    """A run that its overlap policy decided against."""
    tenant, name = _whose(item)
    skip = Skip(tenant, name, reason, item.scheduled_us, item.scheduled_us, 1)
    return Item(Kind.SKIPPED, item.job_id, item.scheduled_us, item.request_id, 0, pack(skip))


def _whose(item: Item) -> tuple[str, str]:
    try:
        work = work_of(item.body)
    except PoisonItem:
        return "", ""
    return work.tenant, work.name
