"""Records set aside: the original key and value, and in headers where they came from and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cronstream.clock import iso
from cronstream.records import Item, idempotency_key

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
EXHAUSTED = "exhausted"
"""A run's last try failed too."""
FINAL = "final"
"""A run failed in a way that no further try would mend."""
UNKNOWN = "unknown"
"""Nobody of ours set it aside."""
REASONS = (
    EXHAUSTED,
    FINAL,
    STALE_TOKEN,
    POISON_RECORD,
    POISON_ITEM,
    UNKNOWN_KIND,
    UNSENDABLE,
    REFUSED_COMMAND,
    UNKNOWN,
)


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


@dataclass(frozen=True, slots=True)
class Subject:
    """The run that a dead letter is about."""

    job_id: int
    tenant: str
    name: str
    scheduled_us: int
    request_id: int
    attempts: int
    """The number of its last try: a redrive numbers on from it."""

    @classmethod
    def of(cls, item: Item, tenant: str, name: str) -> Subject:
        """The run of an item."""
        return cls(item.job_id, tenant, name, item.scheduled_us, item.request_id, item.attempt)

    @property
    def headers(self) -> Headers:
        """As headers, all of them text."""
        return [
            ("cronstream-job-id", str(self.job_id).encode()),
            ("cronstream-tenant", self.tenant.encode()),
            ("cronstream-name", self.name.encode()),
            ("cronstream-scheduled-time", _instant(self.scheduled_us).encode()),
            ("cronstream-request-id", str(self.request_id).encode()),
            ("cronstream-attempts", str(self.attempts).encode()),
            ("cronstream-key", idempotency_key(self.job_id, self.scheduled_us, self.request_id).encode()),
        ]


def _instant(instant_us: int) -> str:
    try:
        return iso(instant_us)
    except OverflowError:  # no calendar goes that far
        return str(instant_us)


class Letter(NamedTuple):
    """What is produced to the dead-letter topic; every broker and client takes it."""

    key: bytes | None
    value: bytes
    headers: Headers


def letter_of(
    record: Record, reason: str, error: str, stage: str, value: bytes | None = None, subject: Subject | None = None
) -> Letter:
    """The record as a dead letter: our headers in front of its own, ``value`` in place of its own if given.

    A letter about one run says which in its headers. An exhausted or final run's value is a batch of one item:
    its last outcome, whose report holds the ``Work`` to try again.

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
        *(subject.headers if subject is not None else ()),
    ]
    size = len(key or b"") + len(body) + sum(len(name) + len(text) for name, text in headers)
    if size > MOST_BYTES:
        own.append(("cronstream-cut", str(size).encode()))
        key, body, headers = (key or b"")[:KEPT_BYTES], body[:KEPT_BYTES], []
    return Letter(key, body, [*own, *headers])
