"""From rows of the database to arrivals. A row that cannot be read becomes a job to be set aside."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from coordinator.arrivals import Edit, Job
from coordinator.planning import Change
from coordinator.rules import NO_RULE, Rule, packed_work, rule_of
from coordinator.zone_data import lower_bound
from cronstream.bodies import Policy, Work, pack


def jobs_of(rows: Iterable[dict[str, Any]], now_us: int) -> list[Job]:
    """Rows of ``read_jobs`` and its like that have a next time, read at ``now_us`` or after."""
    return [
        job_of(
            row["job_id"],
            row,
            row["stored_anchor_us"],
            lower_bound(row["next_us"], row["tzdata"], now_us),
            row["version"],
        )
        for row in rows
    ]


def job_of(job_id: int, columns: Mapping[str, Any], anchor_us: int | None, least_us: int, version: int) -> Job:
    """A job of a definition's columns, at its first time at or after ``least_us``."""
    try:
        rule, work = rule_of(columns, anchor_us), packed_work(columns)
    except Exception as error:
        work = pack(Work(columns["tenant"], columns["name"], columns["handler"], None, Policy()))
        return Job(job_id, least_us, version, NO_RULE, work, str(error) or repr(error))
    return job_at(job_id, least_us, version, rule, work)


def job_at(job_id: int, least_us: int, version: int, rule: Rule, work: bytes) -> Job:
    """A job at its rule's first time at or after ``least_us``: rows hold a lower bound after a takeover."""
    try:
        return Job(job_id, rule.next_after(least_us - 1), version, rule, work)
    except Exception as error:
        return Job(job_id, least_us, version, rule, work, str(error) or repr(error))


def edits_of(rows: Iterable[dict[str, Any]], known: Mapping[int, Collection[int]], now_us: int) -> Iterator[Edit]:
    """Rows of ``read_edits``, read at ``now_us`` or after, without the changes that are ``known`` by job."""
    for job_id, group in itertools.groupby(rows, key=lambda row: int(row["job_id"])):
        new = [row for row in group if row["change_id"] not in known.get(job_id, ())]
        if new:
            yield _edit(job_id, new, now_us)


def _edit(job_id: int, rows: list[dict[str, Any]], now_us: int) -> Edit:
    newest = rows[-1]
    changes = tuple(
        Change(row["change_id"], row["change_revision"], row["committed_us"], row["previous"]) for row in rows
    )
    return Edit(
        job_id,
        changes,
        newest["revision"] if newest["defined"] else newest["change_revision"],
        newest if newest["defined"] else None,
        None if newest["next_us"] is None else lower_bound(newest["next_us"], newest["tzdata"], now_us),
        newest["version"] or 0,
        newest["stored_anchor_us"],
    )
