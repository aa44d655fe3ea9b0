"""Commands that wait for somebody else's transaction, and up to where each partition is done. Pure.

A line is what keeps its order: the commands of one key. While the first of a line waits, those behind it do; the other
lines go on. A command without a key is a line of its own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence

from cronstream.dead_letters import Record

Line = tuple[int, bytes | int]


def line_of(record: Record) -> Line:
    """Its partition, and its key or else its own offset."""
    return record.partition, record.offset if record.key is None else record.key


class Waiting:
    """Of one consumer. Partitions whose commands wait in great number are ``full``: they are paused, not read on."""

    def __init__(self, most: int) -> None:
        """``most``: of one partition; as many more as were read at once may come on top."""
        self._most = most
        self._lines: dict[Line, deque[Record]] = {}
        """In the order in which they are tried again."""
        self._next: dict[int, int] = {}
        """By partition, the offset behind the newest that came."""

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def came(self, records: Iterable[Record]) -> list[Record]:
        """Those of new records that can be tried now; the others stand behind one of their line that waits."""
        now = []
        for record in records:
            self._next[record.partition] = record.offset + 1
            line = self._lines.get(line_of(record))
            if line is None:
                now.append(record)
            else:
                line.append(record)
        return now

    def wait(self, records: Iterable[Record]) -> None:
        """These were tried and have to wait; of one line in their order."""
        for record in records:
            self._lines.setdefault(line_of(record), deque()).append(record)

    def first(self, most: int) -> list[Record]:
        """The first commands of the line that is to be tried next; none if nothing waits."""
        line: Iterable[Record] = next(iter(self._lines.values()), ())
        return [record for _, record in zip(range(most), line, strict=False)]

    def tried(self, records: Sequence[Record], waits: Collection[Record]) -> None:
        """What ``first`` gave was tried, and its last ones wait still; the other lines are tried before it again."""
        line = self._lines.pop(line_of(records[0]), deque())
        for _ in range(min(len(records) - len(waits), len(line))):
            line.popleft()
        if line:
            self._lines[line_of(records[0])] = line

    def full(self) -> set[int]:
        """Partitions of which enough commands wait."""
        waiting = Counter[int]()
        for (partition, _), line in self._lines.items():
            waiting[partition] += len(line)
        return {partition for partition, number in waiting.items() if number >= self._most}

    def done(self, partitions: Iterable[int]) -> dict[int, int]:
        """Where to go on after a crash, of those of them that are known: at the oldest that waits."""
        behind = {partition: self._next[partition] for partition in partitions if partition in self._next}
        for (partition, _), line in self._lines.items():
            if partition in behind:
                behind[partition] = min(behind[partition], line[0].offset)
        return behind

    def forget(self, partitions: Iterable[int]) -> None:
        """They are somebody else's now, who begins where ``done`` said."""
        gone = set(partitions)
        self._lines = {line: records for line, records in self._lines.items() if line[0] not in gone}
        for partition in gone:
            self._next.pop(partition, None)
