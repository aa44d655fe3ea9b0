"""Which jobs of a partition are whose, and in which state: for the tenants' pages. Pure.

A question must not read a million rows, so tenant and state of every job lie in sorted
columns, 13 bytes a job, and a question is one pass of numpy. Jobs that are new wait
in a dict and are merged in when they are many.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from streams import status
from streams.status import JobStatus

MERGE_AT = 1024
"""New jobs are merged once they are as many, and an eighth of those merged before."""
_GONE = 255
_DELETED = "deleted"


class Entry(NamedTuple):
    """A job as the index keeps it; ``state`` None: no such job any more."""

    job_id: int
    tenant: str
    state: str | None


def entry_of(job_id: int, known: JobStatus) -> Entry:
    """What the index keeps of a row of the status table."""
    return Entry(job_id, known.tenant, status.state_of(known))


class JobIndex:
    """Tenant and state of a partition's jobs, by job id."""

    def __init__(self) -> None:
        self._ids = np.empty(0, np.int64)
        self._tenants = np.empty(0, np.int32)
        self._states = np.empty(0, np.uint8)
        self._fresh: dict[int, tuple[int, int]] = {}
        self.merge_at = MERGE_AT
        self._tenant_codes: dict[str, int] = {}
        self._state_codes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._ids) + len(self._fresh)

    def put(self, entries: Iterable[Entry]) -> None:
        """What these jobs are now."""
        known = {entry.job_id: self._coded(entry) for entry in entries}
        codes = np.array(list(known.values()), np.int32).reshape(len(known), 2)
        places, found = self._places(known)
        self._tenants[places[found]] = codes[found, 0]
        self._states[places[found]] = codes[found, 1]
        if not found.all():
            self._fresh.update(new for new, there in zip(known.items(), found.tolist(), strict=True) if not there)
            self._merge()

    def put_older(self, entries: Iterable[Entry]) -> None:
        """What these jobs were: kept for those that nothing newer is known of."""
        known = {entry.job_id: entry for entry in entries if entry.job_id not in self._fresh}
        _, found = self._places(known)
        self.put(entry for entry, there in zip(known.values(), found.tolist(), strict=True) if not there)

    def find(self, tenant: str, state: str | None, after: int, most: int) -> list[int]:
        """The tenant's first ``most`` jobs above ``after`` in that state, in order.

        Without a state: in any but ``deleted``.
        """
        code = self._tenant_codes.get(tenant)
        if code is None:
            return []
        wanted = None if state is None else self._state_codes.get(state, _GONE - 1)
        deleted = self._state_codes.get(_DELETED, _GONE - 1)
        begin = int(np.searchsorted(self._ids, after, "right"))
        states = self._states[begin:]
        fits = states == wanted if wanted is not None else (states != deleted) & (states != _GONE)
        merged = self._ids[begin:][fits & (self._tenants[begin:] == code)][:most].tolist()
        fresh = [
            job_id
            for job_id, (owner, now) in self._fresh.items()
            if job_id > after
            and owner == code
            and (now == wanted if wanted is not None else now not in (deleted, _GONE))
        ]
        return sorted(merged + fresh)[:most]

    def _coded(self, entry: Entry) -> tuple[int, int]:
        tenant = self._tenant_codes.setdefault(entry.tenant, len(self._tenant_codes))
        if entry.state is None:
            return tenant, _GONE
        return tenant, self._state_codes.setdefault(entry.state, len(self._state_codes))

    def _places(self, job_ids: Collection[int]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
        """Where each id is among the merged, and whether it is there."""
        ids = np.fromiter(job_ids, np.int64, len(job_ids))
        places = np.searchsorted(self._ids, ids)
        found = places < len(self._ids)
        found[found] = self._ids[places[found]] == ids[found]
        return places, found

    def _merge(self) -> None:
        if len(self._fresh) < max(self.merge_at, len(self._ids) // 8):
            return
        fresh = np.array([(job_id, *codes) for job_id, codes in sorted(self._fresh.items())], np.int64)
        ids = np.concatenate([self._ids, fresh[:, 0]])
        order = np.argsort(ids, kind="stable")  # two sorted runs: one merge
        self._ids = ids[order]
        self._tenants = np.concatenate([self._tenants, fresh[:, 1].astype(np.int32)])[order]
        self._states = np.concatenate([self._states, fresh[:, 2].astype(np.uint8)])[order]
        self._fresh = {}
