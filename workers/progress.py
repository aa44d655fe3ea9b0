"""How far a partition of attempts is: what to drop, what may be committed.

Records are taken in the order of their offsets and end in any order. What is
committed is the offset of the first record with an unfinished item, and as its
metadata:

- ``sources``: the highest source (of each source topic and partition) among the
  records *below* the committed offset, exactly. A record whose source is not
  above it is a second emission and runs nothing.
- ``outcomes_from``: a lower bound of where outcomes of the records at and above
  the committed offset lie. Whoever takes over reads outcomes from there.

After a takeover the records below ``redelivered_below`` may have been taken
before, by another worker: their bound is the one it committed, not a newer one.

Pure; called from one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from cronstream.records import Source

Place = tuple[str, int]
"""A source topic and its partition."""
Mark = tuple[int, int]
"""The offset and part of a source."""


@dataclass(frozen=True, slots=True)
class Position:
    """What is committed of one partition."""

    offset: int
    outcomes_from: int
    sources: Mapping[Place, Mark] = field(default_factory=dict)


class _Metadata(msgspec.Struct, array_like=True, frozen=True):
    version: int
    outcomes_from: int
    sources: list[tuple[str, int, int, int]]


_VERSION = 1
_decoder = msgspec.json.Decoder(_Metadata)


def encode_metadata(position: Position) -> str:
    """The commit's metadata: JSON, well under the broker's 4,096 bytes."""
    sources = [(topic, partition, *mark) for (topic, partition), mark in sorted(position.sources.items())]
    return msgspec.json.encode(_Metadata(_VERSION, position.outcomes_from, sources)).decode()


def decode_metadata(offset: int, metadata: str | None) -> Position | None:
    """The committed position; None if the metadata is missing or not ours (then nothing is known)."""
    try:
        found = _decoder.decode(metadata or "")
    except msgspec.MsgspecError:
        return None
    if found.version != _VERSION:
        return None
    return Position(offset, found.outcomes_from, {(t, p): (o, part) for t, p, o, part in found.sources})


@dataclass(slots=True)
class _Taken:
    source: Source | None
    outcomes_from: int
    unfinished: int


class Progress:
    """One partition, from its takeover on."""

    def __init__(self, position: Position, *, outcomes_end: int, redelivered_below: int = 0) -> None:
        self._next = position.offset
        self._inherited = position.outcomes_from
        self._redelivered_below = redelivered_below
        self._outcomes_end = outcomes_end
        self._taken: dict[int, _Taken] = {}
        self._seen: dict[Place, Mark] = dict(position.sources)
        self._below: dict[Place, Mark] = dict(position.sources)

    @property
    def unfinished(self) -> int:
        """Items taken and not ended."""
        return sum(taken.unfinished for taken in self._taken.values())

    @property
    def next_offset(self) -> int:
        """Records below it have been taken."""
        return self._next

    def take(self, offset: int, source: Source | None, items: int) -> bool:
        """Take a record of ``items`` items. False: a second emission, nothing of it may run."""
        if offset < self._next:
            raise ValueError(f"offset {offset} comes after offset {self._next - 1} was taken")
        fresh = source is None or _mark(source) > self._seen.get(_place(source), (-1, -1))
        if source is not None and fresh:
            self._seen[_place(source)] = _mark(source)
        self._taken[offset] = _Taken(source, self._bound(offset), items if fresh else 0)
        self._next = offset + 1
        self._advance()
        return fresh

    def finish(self, offset: int, items: int = 1) -> None:
        """That many items of the record have ended, and their outcomes are acknowledged."""
        taken = self._taken[offset]
        if items > taken.unfinished:
            raise ValueError(f"{items} items of offset {offset} end; only {taken.unfinished} are unfinished")
        taken.unfinished -= items
        self._advance()

    def outcome_acknowledged(self, offset: int) -> None:
        """Outcomes of this partition reach at least beyond ``offset``."""
        self._outcomes_end = max(self._outcomes_end, offset + 1)

    def position(self) -> Position:
        """What may be committed now."""
        for offset, taken in self._taken.items():
            return Position(offset, taken.outcomes_from, dict(self._below))
        return Position(self._next, self._bound(self._next), dict(self._below))

    def _bound(self, offset: int) -> int:
        return self._inherited if offset < self._redelivered_below else self._outcomes_end

    def _advance(self) -> None:
        for offset, taken in list(self._taken.items()):
            if taken.unfinished:
                return
            del self._taken[offset]
            if taken.source is not None:
                place = _place(taken.source)
                self._below[place] = max(self._below.get(place, (-1, -1)), _mark(taken.source))


def _place(source: Source) -> Place:
    return (source.topic, source.partition)


def _mark(source: Source) -> Mark:
    return (source.offset, source.part)
