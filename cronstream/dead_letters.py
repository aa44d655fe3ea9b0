"""Records set aside: the original key and value, and in headers where they came from and why."""

from __future__ import annotations

from dataclasses import dataclass

Headers = list[tuple[str, bytes]]

STALE_TOKEN = "stale_token"  # noqa: S105
UNKNOWN_KIND = "unknown_kind"
POISON_RECORD = "poison_record"
POISON_ITEM = "poison_item"


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


def headers_of(record: Record, reason: str, error: str, stage: str) -> Headers:
    """The record's own headers, and ours in front of them."""
    return [
        ("cronstream-reason", reason.encode()),
        ("cronstream-error", error.encode(errors="replace")),
        ("cronstream-stage", stage.encode()),
        ("cronstream-topic", record.topic.encode()),
        ("cronstream-partition", str(record.partition).encode()),
        ("cronstream-offset", str(record.offset).encode()),
        *record.headers,
    ]
