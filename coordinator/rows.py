"""From rows of the database to arrivals. A row that cannot be read becomes a job to be set aside."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from coordinator.arrivals import Edit, Job
from coordinator.planning import Change
from coordinator.rules import Rule, packed_work, rule_of
from coordinator.zone_data import lower_bound
from cronstream.bodies import Policy, Work, pack


def jobs_of(rows: Iterable[dict[str, Any]], now_us: int) -> Iterator[Job]:
    """Rows of ``load`` and its like that have a next time, read at ``now_us`` or after."""
    for row in rows:
        try:
            rule, work, error = rule_of(row, row["stored_anchor_us"]), packed_work(row), None
        except Exception as unreadable:
            rule, error = Rule(None), str(unreadable) or repr(unreadable)
            work = pack(Work(row["tenant"], row["name"], row["handler"], None, Policy()))
        next_us = lower_bound(row["next_us"], row["tzdata"], now_us)
        yield Job(row["job_id"], next_us, row["version"], rule, work, error)


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
