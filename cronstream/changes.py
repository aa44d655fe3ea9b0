"""The change feed on the wire: what capture writes to ``<installation>.changes``.

Debezium's envelope as JSON, one record a captured row, in commit order:

    {"op": "c", "source": {"table": "job_changes", "ts_us": ..., "ts_ms": ...},
     "after": {"change_id": 7, "job_id": 3, "revision": 12, "kind": "update", ...}}

``source.ts_*`` is when the transaction committed, by the database's clock. Pure;
the coordinator reads with it, capture's own watchdog and tests as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from cronstream.records import PoisonRecord

KINDS = frozenset({"insert", "update", "delete"})


@dataclass(frozen=True, slots=True)
class Change:
    """One edit of a definition, committed."""

    job_id: int
    change_id: int
    revision: int
    kind: str
    """insert | update | delete."""
    committed_us: int

    @property
    def committed_ms(self) -> int:
        return self.committed_us // 1000


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Everything that committed before this has been delivered."""

    committed_us: int

    @property
    def committed_ms(self) -> int:
        return self.committed_us // 1000


@dataclass(frozen=True, slots=True)
class Requested:
    """A request with runs to publish, committed."""

    number: int
    kind: str
    """run-now | backfill | redrive."""
    committed_us: int


Event = Change | Requested | Heartbeat


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
    except (KeyError, TypeError, AttributeError) as error:
        raise PoisonRecord(f"change feed: not a row's envelope: {error!r}") from None


def _row(record: dict[str, Any]) -> Event | None:
    source, after = record["source"], record["after"]
    # "r" is a snapshot's read: capture makes none, but what it said would be true.
    if record["op"] not in ("c", "u", "r"):
        return None
    if source["table"] == "capture_heartbeat":
        return Heartbeat(_committed_us(source))
    if source["table"] == "open_requests":
        return Requested(_whole(after["number"]), _text(after["kind"]), _committed_us(source))
    if source["table"] != "job_changes":
        return None
    change = Change(
        job_id=_whole(after["job_id"]),
        change_id=_whole(after["change_id"]),
        revision=_whole(after["revision"]),
        kind=after["kind"],
        committed_us=_committed_us(source),
    )
    if change.kind not in KINDS:
        raise PoisonRecord(f"change feed: unknown kind {change.kind!r} of change {change.change_id}")
    return change


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
