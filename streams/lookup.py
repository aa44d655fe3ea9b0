"""What this process surely knows of jobs. An answer counts only if the partition was ours after the read."""

from __future__ import annotations

from typing import Any

from cronstream.topics import partition_of
from streams import status
from streams.app import JOBS, StreamsApp
from streams.index import JobIndex
from streams.status import JobStatus
from streams.tables import PartitionTable


class Moving(Exception):
    """Nobody can be sure about a partition right now."""


class Lookup:
    """Reads the status tables of the partitions owned here."""

    def __init__(self, app: StreamsApp) -> None:
        self._app = app

    def partition_of(self, job_id: int) -> int:
        """Where the job's status is."""
        return partition_of(job_id, self._app.settings.partitions)

    def job(self, job_id: int) -> JobStatus | None:
        """The job's status; None if the owner knows no such job. Raises Moving."""
        partition = self.partition_of(job_id)
        self._be_sure(partition)
        value = self._table(partition).get(status.key_of(job_id))
        self._be_sure(partition)
        return None if value is None else JobStatus.decode(value)

    def jobs(self, partition: int, tenant: str, state: str | None, after: int, most: int) -> list[dict[str, Any]]:
        """A tenant's jobs of one partition as JSON, by id. Raises Moving."""
        self._be_sure(partition)
        index = self._index(partition)
        table = self._table(partition)
        shown = []
        for job_id in index.find(tenant, state, after, most):
            value = table.get(status.key_of(job_id))
            if value is not None:
                shown.append(status.shown(job_id, JobStatus.decode(value)))
        self._be_sure(partition)
        return shown

    def is_ours(self, partition: int) -> bool:
        """True if it is answered here, as far as is known now."""
        return self._app.lane_of(self._app.settings.topics.outcomes, partition) is not None

    def _be_sure(self, partition: int) -> None:
        if not self.is_ours(partition):
            raise Moving(f"partition {partition} is not owned here")

    def _index(self, partition: int) -> JobIndex:
        index = self._app.index_of(partition)
        if index is None:
            raise Moving(f"partition {partition} came just now and its jobs are being counted")
        return index

    def _table(self, partition: int) -> PartitionTable:
        return PartitionTable(self._app, self._app.tables[JOBS], partition)
