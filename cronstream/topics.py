"""Topic names, and the partition of a job: equal for every producer and client.

All names hang off the installation's name, so that two installations (or two
tests) can share one broker. ``triggers``, ``attempts``, ``outcomes`` and
the retry topics are co-partitioned by job id.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

DAY_MS = 24 * 3600 * 1000
# Longer than the largest max_backoff (24 h), so that no retry outlives its records.
WORK_RETENTION_MS = 3 * DAY_MS
KEEP_LONG_MS = 14 * DAY_MS
RETRY_TIERS = (1, 4, 16, 64, 256, 1024)
"""Seconds that a retry waits in each of the retry topics; every delay is a sum of these."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to create: its name, partitions and broker settings."""

    name: str
    partitions: int
    config: dict[str, str]


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of one installation's topics."""

    installation: str = "cronstream"

    @property
    def changes(self) -> str:
        """Edits and heartbeats, captured by Debezium; one partition, so in commit order."""
        return f"{self.installation}.changes"

    @property
    def triggers(self) -> str:
        """What the leader publishes."""
        return f"{self.installation}.triggers"

    @property
    def attempts(self) -> str:
        """What workers run."""
        return f"{self.installation}.attempts"

    @property
    def outcomes(self) -> str:
        """How attempts began and ended, and what did not run."""
        return f"{self.installation}.outcomes"

    @property
    def dead_letter(self) -> str:
        """What is set aside, with its reason; nothing is just dropped."""
        return f"{self.installation}.dead-letter"

    def retry(self, tier_seconds: int) -> str:
        """Where a retry waits for so many seconds: what came first is due first."""
        return f"{self.installation}.retry.{tier_seconds}"

    @property
    def retry_due(self) -> str:
        """Retries whose time has come, on their way through admission."""
        return f"{self.installation}.retry.due"

    @property
    def alerts(self) -> str:
        """What an operator should hear of, grouped; JSON."""
        return f"{self.installation}.alerts"

    @property
    def commands(self) -> str:
        """What users ask for by Kafka instead of SQL; JSON, keyed by tenant/name."""
        return f"{self.installation}.commands"

    @property
    def command_results(self) -> str:
        """The answer to each command, under its id; JSON."""
        return f"{self.installation}.command-results"

    def specs(self, partitions: int) -> list[TopicSpec]:
        """Every topic that an installation needs before its processes start."""
        work = {"cleanup.policy": "delete", "retention.ms": str(WORK_RETENTION_MS)}
        keep = {"cleanup.policy": "delete", "retention.ms": str(KEEP_LONG_MS)}
        return [
            TopicSpec(self.changes, 1, work),
            TopicSpec(self.triggers, partitions, work),
            TopicSpec(self.attempts, partitions, work),
            TopicSpec(self.outcomes, partitions, work),
            *(TopicSpec(self.retry(tier), partitions, work) for tier in RETRY_TIERS),
            TopicSpec(self.retry_due, partitions, work),
            TopicSpec(self.dead_letter, partitions, keep),
            TopicSpec(self.alerts, 1, keep),
            TopicSpec(self.commands, partitions, work),
            TopicSpec(self.command_results, partitions, keep),
        ]


def partition_of(job_id: int, partitions: int) -> int:
    """murmur2 of the job id as text, as Java and Faust clients compute it."""
    return (murmur2(str(job_id).encode()) & 0x7FFFFFFF) % partitions


def partitions_of(job_ids: npt.NDArray[np.int64], partitions: int) -> npt.NDArray[np.int32]:
    """``partition_of`` for many job ids at once (none negative)."""
    text = job_ids.astype("S20")
    digits = text.view(np.uint8).reshape(len(job_ids), 20)
    lengths = np.count_nonzero(digits, axis=1)
    result = np.empty(len(job_ids), np.int32)
    for length in np.unique(lengths).tolist():
        alike = lengths == length
        hashed = _murmur2_columns(digits[alike, :length])
        result[alike] = (hashed & 0x7FFFFFFF) % partitions
    return result


def _murmur2_columns(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """murmur2 of each row; rows of equal length. Unsigned 32-bit arithmetic wraps, as murmur2 wants."""
    count, length = data.shape
    m = np.uint32(0x5BD1E995)
    h = np.full(count, 0x9747B28C ^ length, np.uint32)
    whole = length & ~3
    for i in range(0, whole, 4):
        k = np.ascontiguousarray(data[:, i : i + 4]).view("<u4").reshape(count) * m
        k = (k ^ (k >> np.uint32(24))) * m
        h = h * m ^ k
    if length > whole:
        tail = np.zeros((count, 4), np.uint8)
        tail[:, : length - whole] = data[:, whole:]
        h = (h ^ tail.view("<u4").reshape(count)) * m
    h = (h ^ (h >> np.uint32(13))) * m
    return h ^ (h >> np.uint32(15))


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 (seed 0x9747b28c), unsigned."""
    length = len(data)
    m = 0x5BD1E995
    mask = 0xFFFFFFFF
    h = (0x9747B28C ^ length) & mask
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    tail = data[whole:]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return h ^ (h >> 15)
