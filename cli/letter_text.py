"""What is in a dead letter's record, as people read it. Pure."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from cli.output import text
from cronstream.bodies import PoisonItem, Report, Skip, Work, report_of, skip_of, work_of
from cronstream.clock import iso
from cronstream.records import Batch, Kind, PoisonRecord

_SHOWN_BYTES = 500


def readable(value: bytes) -> str:
    """A key or a header on one line: its text, or its bytes as hexadecimal digits; the beginning of a long one."""
    shown = value[:_SHOWN_BYTES]
    more = "..." if len(value) > len(shown) else ""
    for cut in range(4 if more else 1):  # a character may have been cut in two
        with suppress(UnicodeDecodeError):
            return text(shown[: len(shown) - cut].decode()) + more
    return f"0x{shown.hex()}{more}"


def pretty(value: bytes) -> str:
    """A value that is no batch: JSON indented, any other text as it is, else its size and its first bytes."""
    try:
        written = value.decode()
    except UnicodeDecodeError:
        return f"{len(value):,} bytes: {readable(value)}"
    try:
        return json.dumps(json.loads(written), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return written or "(empty)"


def described(value: bytes) -> list[dict[str, Any]] | None:
    """The items of a batch, as people read them; None if the value is no batch."""
    try:
        batch = Batch.decode(value)
    except PoisonRecord:
        return None
    items = []
    for index in range(len(batch)):
        read: Work | Skip | Report | None = None
        for reader in (report_of, work_of, skip_of):
            with suppress(PoisonItem):
                read = reader(batch.body(index))
                break
        scheduled = int(batch.scheduled[index])
        try:
            when: str | int = iso(scheduled)
        except OverflowError:
            when = scheduled
        items.append(
            {
                "kind": _kind(int(batch.kind[index])),
                "job_id": int(batch.job_id[index]),
                "scheduled_time": when,
                "request_id": int(batch.request_id[index]),
                "attempt": int(batch.attempt[index]),
                "tenant": None if read is None else read.tenant,
                "name": None if read is None else read.name,
                "error": getattr(read, "error", None) or getattr(read, "reason", None),
            }
        )
    return items


def _kind(number: int) -> str | int:
    try:
        return Kind(number).name.lower()
    except ValueError:
        return number
