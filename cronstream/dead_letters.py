"""Records set aside: the original key and value, and in headers where they came from and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

MOST_BYTES = 900_000
"""Below what brokers and clients take by default, headers of ours included."""
KEPT_BYTES = 64 * 1024
ERROR_CHARACTERS = 2000

Headers = list[tuple[str, bytes]]

STALE_TOKEN = "stale_token"  # noqa: S105
UNKNOWN_KIND = "unknown_kind"
POISON_RECORD = "poison_record"
POISON_ITEM = "poison_item"
UNSENDABLE = "unsendable"
REFUSED_COMMAND = "refused_command"


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def place(self) -> str:
        """For log lines and errors."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


class Letter(NamedTuple):
    """What is produced to the dead-letter topic; every broker and client takes it."""

    key: bytes | None
    value: bytes
    headers: Headers


def letter_of(record: Record, reason: str, error: str, stage: str, value: bytes | None = None) -> Letter:
    """The record as a dead letter: our headers in front of its own, ``value`` in place of its own if given.

    A record without a value becomes one with an empty value: no client produces one that has neither key nor
    value. One too large to be produced again with our headers is cut, and says so; it still stands at its place.
    """
    key, body, headers = record.key, record.value or b"" if value is None else value, record.headers
    own = [
        ("cronstream-reason", reason.encode()),
        ("cronstream-error", error[:ERROR_CHARACTERS].encode(errors="replace")),
        ("cronstream-stage", stage.encode()),
        ("cronstream-topic", record.topic.encode()),
        ("cronstream-partition", str(record.partition).encode()),
        ("cronstream-offset", str(record.offset).encode()),
    ]
    size = len(key or b"") + len(body) + sum(len(name) + len(text) for name, text in headers)
    if size > MOST_BYTES:
        own.append(("cronstream-cut", str(size).encode()))
        key, body, headers = (key or b"")[:KEPT_BYTES], body[:KEPT_BYTES], []
    return Letter(key, body, [*own, *headers])
