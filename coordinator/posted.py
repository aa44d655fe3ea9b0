"""Which changes were handed over and perhaps are not closed yet: they are not planned twice."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from coordinator.arrivals import Edit
from coordinator.audit import OpenChange


class Posted:
    """One thread owns it: the reader's."""

    def __init__(self) -> None:
        self.by_job: dict[int, set[int]] = {}
        """Change ids."""

    def has(self, job_id: int, change_id: int) -> bool:
        """True if that change was handed over."""
        return change_id in self.by_job.get(job_id, ())

    def new(self, changes: Iterable[OpenChange]) -> list[OpenChange]:
        """Those of the changes that were not."""
        return [change for change in changes if not self.has(change.job_id, change.change_id)]

    def add(self, edits: Iterable[Edit]) -> None:
        """These are handed over now."""
        for edit in edits:
            self.by_job.setdefault(edit.job_id, set()).update(change.change_id for change in edit.changes)

    def forget(self, job_ids: Iterable[int]) -> None:
        """The jobs are read anew, whatever was handed over of them."""
        for job_id in job_ids:
            self.by_job.pop(job_id, None)

    def ids(self) -> set[int]:
        """All change ids, as they are now."""
        return set().union(*self.by_job.values())

    def close(self, closed: Collection[int]) -> None:
        """These changes are not open any more."""
        for job_id, ids in list(self.by_job.items()):
            ids.difference_update(closed)
            if not ids:
                del self.by_job[job_id]
