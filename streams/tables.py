"""One partition of a Faust table, written a step at a time.

Faust recovers the table from its changelog; writing goes around Faust's own item
assignment, which costs ten times as much a row, does not wait for the changelog,
and stores locally what may never reach it. Here rows are stored locally only once the
changelog has them, in one batch with the offset up to which they are included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import rocksdict

from cronstream.dead_letters import Headers

OPTIONS = {
    "driver": "rocksdict",
    "block_cache_size": 8 * 1024 * 1024,
    "write_buffer_size": 4 * 1024 * 1024,
    "max_write_buffer_number": 2,
    "max_open_files": 256,
}
"""RocksDB settings of every table; Faust's defaults take 2 GiB a partition."""
NO_HEADERS: Headers = []


class PartitionTable:
    """Reads and writes the rows of one partition. Keys and values are bytes."""

    def __init__(self, app: Any, table: Any, partition: int) -> None:
        self._app = app
        self._store = table.data
        self._topic: str = table.changelog_topic.get_topic_name()
        self._partition = partition

    def get(self, key: bytes) -> bytes | None:
        """A row's value, or None."""
        value: bytes | None = self._store._db_for_partition(self._partition).get(key)
        return value

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """All rows by key, as they are at the call whatever is written afterwards.

        The iterator keeps the store open: drop it before the partition goes.
        """
        rows = self._store._db_for_partition(self._partition).items()
        own: bytes = self._store.offset_key
        return ((key, value) for key, value in rows if key != own)

    def values(self) -> Iterator[bytes]:
        """The values of ``items``."""
        return (value for _, value in self.items())

    async def log(self, rows: Mapping[bytes, bytes | None]) -> int | None:
        """Write to the changelog; returns once the broker has acknowledged every row."""
        records = [(key, value, NO_HEADERS) for key, value in rows.items()]
        last: int | None = await self._app.producer.append(self._topic, self._partition, records)
        return last

    def store(self, rows: Mapping[bytes, bytes | None], logged: int | None) -> None:
        """Write to the local store, with the changelog offset that it now includes."""
        if logged is None:
            return
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in rows.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        batch.put(self._store.offset_key, str(logged).encode())
        self._store._db_for_partition(self._partition).write(batch)
