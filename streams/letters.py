"""Dead letters as rows of ``cronstream.dead_letters``. Pure, and never at a loss: whatever is in the topic is a row."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from cronstream.bodies import PoisonItem, Report, Skip, Work, report_of, skip_of, work_of
from cronstream.clock import to_datetime
from cronstream.dead_letters import UNKNOWN, Record
from cronstream.records import Batch, PoisonRecord
from streams.history import clean

_OURS = "cronstream-"
_INTEGER = (1 << 31) - 1
_BIGINT = (1 << 63) - 1
_READERS: tuple[Callable[[bytes], Work | Skip | Report], ...] = (report_of, work_of, skip_of)


class Subject(NamedTuple):
    """What a letter is about: of its items the jobs; where it is one job, or one run, which."""

    job_ids: list[int]
    tenant: str | None = None
    name: str | None = None
    scheduled_time: datetime | None = None
    request_id: int | None = None
    attempts: int | None = None
    idempotency_key: str | None = None

    @property
    def job_id(self) -> int | None:
        """The one job; None if it is about several, or none that is known."""
        return self.job_ids[0] if len(self.job_ids) == 1 else None


class DeadLetter(NamedTuple):
    """A row, in the order of its columns."""

    identity: bytes
    reason: str
    stage: str
    error: str
    at: datetime
    topic: str
    partition: int
    offset: int
    job_ids: list[int]
    tenant: str | None
    name: str | None
    scheduled_time: datetime | None
    request_id: int | None
    attempts: int | None
    idempotency_key: str | None
    key: bytes | None
    value: bytes
    headers: str
    cut: bool
    letter_partition: int
    letter_offset: int

    @property
    def job_id(self) -> int | None:
        """The one job that it is about."""
        return self.job_ids[0] if len(self.job_ids) == 1 else None


def read_letter(record: Record, at: datetime) -> DeadLetter:
    """The letter that a record of the dead-letter topic is.

    Its identity is where its record stood, why and by whom it was set aside, and what was set aside: a decision that
    was repeated after a crash produced it twice, and it is one letter.
    """
    ours = {name.removeprefix(_OURS): text for name, text in record.headers if name.startswith(_OURS)}
    own = [(name, text) for name, text in record.headers if not name.startswith(_OURS)]
    value = record.value or b""
    subject = _subject(ours, value)
    place = [ours.get(name, b"") for name in ("topic", "partition", "offset", "reason", "stage")]
    if not place[0]:
        place.append(record.place.encode())  # nobody of ours set it aside
    return DeadLetter(
        hashlib.sha256(b"\x00".join([*place, value])).digest(),
        _text(ours, "reason") or UNKNOWN,
        _text(ours, "stage") or UNKNOWN,
        _text(ours, "error") or "",
        at,
        _text(ours, "topic") or "",
        _number(ours, "partition", _INTEGER) or 0,
        _number(ours, "offset") or 0,
        *subject,
        record.key,
        value,
        json.dumps([[clean(name), base64.b64encode(text).decode()] for name, text in own]),
        "cut" in ours,
        record.partition,
        record.offset,
    )


def own_headers(headers: list[tuple[str, str]]) -> list[tuple[str, bytes]]:
    """A row's headers as they were."""
    return [(name, base64.b64decode(text)) for name, text in headers]


def _subject(ours: dict[str, bytes], value: bytes) -> Subject:
    job_id = _number(ours, "job-id")
    if job_id is not None:
        return Subject(
            [job_id],
            _text(ours, "tenant"),
            _text(ours, "name"),
            _instant(ours, "scheduled-time"),
            _number(ours, "request-id"),
            _number(ours, "attempts", _INTEGER),
            _text(ours, "key"),
        )
    try:
        batch = Batch.decode(value)
    except PoisonRecord:
        return Subject([])
    job_ids = sorted(set(batch.job_id.tolist()))
    if len(job_ids) != 1:
        return Subject(job_ids)
    tenant, name = _names(batch.body(0))
    if len(batch) > 1:
        return Subject(job_ids, tenant, name)
    scheduled = None
    with suppress(OverflowError):
        scheduled = to_datetime(int(batch.scheduled[0]))
    return Subject(job_ids, tenant, name, scheduled, int(batch.request_id[0]))


def _names(body: bytes) -> tuple[str | None, str | None]:
    for reader in _READERS:
        with suppress(PoisonItem):
            read = reader(body)
            return clean(read.tenant), clean(read.name)
    return None, None


def _text(ours: dict[str, bytes], name: str) -> str | None:
    return clean(ours[name].decode(errors="replace")) if name in ours else None


def _number(ours: dict[str, bytes], name: str, most: int = _BIGINT) -> int | None:
    try:
        number = int(ours[name])
    except (KeyError, ValueError):
        return None
    return number if 0 <= number <= most else None


def _instant(ours: dict[str, bytes], name: str) -> datetime | None:
    try:
        instant = datetime.fromisoformat(ours[name].decode())
    except (KeyError, ValueError):
        return None
    return instant if instant.tzinfo is not None else None
