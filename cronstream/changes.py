"""The change feed on the wire: what capture writes to ``<installation>.changes``.

Debezium's envelope as JSON, one record a captured row, in commit order. Word of edits is one row for a statement,
or for a thousand edits of a larger one:

    {"op": "c", "source": {"table": "announcements", "ts_us": ..., "ts_ms": ...},
     "after": {"change_ids": [7, 8], "job_ids": [3, 4], ...}}

``source.ts_*`` is when the transaction committed, by the database's clock. Pure;
the coordinator reads with it, capture's own watchdog and tests as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from cronstream.records import PoisonRecord


@dataclass(frozen=True, slots=True)
class Changes:
    """Edits of definitions that one statement made, committed."""

    job_of: Mapping[int, int]
    """By change id, as in ``job_changes``."""
    committed_us: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Everything that committed before this has been delivered."""

    committed_us: int


@dataclass(frozen=True, slots=True)
class Requested:
    """A request with runs to publish, committed."""

    number: int
    kind: str
    """run-now | backfill | redrive."""
    committed_us: int


Event = Changes | Requested | Heartbeat


def decode(value: bytes | None) -> Event | None:
    """What a record says; None for one that says nothing here. Raises PoisonRecord.

    Nothing here: a tombstone, Debezium's own heartbeat message, an operation or a
    table that is not part of the feed.
    """
    if value is None:
        return None
    try:
        record = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise PoisonRecord(f"change feed: not JSON: {error}") from None
    if not isinstance(record, dict):
        raise PoisonRecord(f"change feed: not an object but {type(record).__name__}")
    if "op" not in record:
        return None
    try:
        return _row(record)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise PoisonRecord(f"change feed: not a row's envelope: {error!r}") from None


def _row(record: dict[str, Any]) -> Event | None:
    # "r" is a snapshot's read: capture makes none, but what it said would be true.
    if record["op"] not in ("c", "u", "r"):
        return None
    source, after = record["source"], record["after"]
    if source["table"] == "capture_heartbeat":
        return Heartbeat(_committed_us(source))
    if source["table"] == "announcements":
        pairs = zip(after["change_ids"], after["job_ids"], strict=True)
        return Changes({_whole(change_id): _whole(job_id) for change_id, job_id in pairs}, _committed_us(source))
    if source["table"] == "open_requests":
        return Requested(_whole(after["number"]), _text(after["kind"]), _committed_us(source))
    return None


def _committed_us(source: dict[str, Any]) -> int:
    micros = source.get("ts_us")
    return _whole(micros) if micros is not None else _whole(source["ts_ms"]) * 1000


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value
