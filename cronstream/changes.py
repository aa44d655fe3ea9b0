"""The change feed on the wire: what capture writes to ``<installation>.changes``.

Debezium's envelopes as JSON, in commit order. Word of edits is a message that a trigger puts in the log
(``content`` is base64), one for a statement, or for a thousand edits of a larger one:

    {"op": "m", "source": {"ts_us": ..., "ts_ms": ...},
     "message": {"prefix": "cronstream", "content": {"changes": [[change_id, job_id], ...]}}}

and a request or a heartbeat is a captured row:

    {"op": "c", "source": {"table": "open_requests", "ts_us": ..., "ts_ms": ...},
     "after": {"number": 7, "kind": "run-now"}}

``source.ts_*`` is when the transaction committed, by the database's clock. Pure;
the coordinator reads with it, capture's own watchdog and tests as well.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from cronstream.records import PoisonRecord

PREFIX = "cronstream"
"""Of our messages, among those of others."""


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

    Nothing here: a tombstone, Debezium's own heartbeat message, an operation, a
    table or a message that is not part of the feed.
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
        return _message(record) if record["op"] == "m" else _row(record)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise PoisonRecord(f"change feed: not an envelope: {error!r}") from None


def _message(record: dict[str, Any]) -> Changes | None:
    message = record["message"]
    if message["prefix"] != PREFIX:
        return None
    content = orjson.loads(base64.b64decode(message["content"], validate=True))
    changes = {_whole(change_id): _whole(job_id) for change_id, job_id in content["changes"]}
    return Changes(changes, _committed_us(record["source"]))


def _row(record: dict[str, Any]) -> Event | None:
    source, after = record["source"], record["after"]
    # "r" is a snapshot's read: capture makes none, but what it said would be true.
    if record["op"] not in ("c", "u", "r"):
        return None
    if source["table"] == "capture_heartbeat":
        return Heartbeat(_committed_us(source))
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
