"""Rows of ``load`` as Postgres sends them, for tests that have definitions in memory."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from coordinator.columns import BOUNDS, COMMON, Row
from coordinator.composite import EPOCH_US

INSTANT, SPAN = 1184, 1186
TYPES = {**dict.fromkeys(BOUNDS, INSTANT), "every_us": SPAN, "misfire_grace_us": SPAN, "max_backoff_us": SPAN}


def composite(values: Sequence[tuple[int, Any]]) -> bytes:
    """A ROW(...) of (type, value); instants and spans in microseconds."""
    return struct.pack("!i", len(values)) + b"".join(_field(kind, value) for kind, value in values)


def _field(kind: int, value: Any) -> bytes:
    if value is None:
        return struct.pack("!Ii", kind or 25, -1)
    if kind == INSTANT:
        data = struct.pack("!q", value - EPOCH_US)
    elif kind == SPAN:
        data = struct.pack("!qii", value, 0, 0)
    elif isinstance(value, bool):
        kind, data = 16, struct.pack("!?", value)
    elif isinstance(value, int):
        kind, data = 23, struct.pack("!i", value)
    elif isinstance(value, float):
        kind, data = 701, struct.pack("!d", value)
    else:
        kind, data = 25, value.encode()
    return struct.pack("!Ii", kind, len(data)) + data


def load_row(columns: Mapping[str, Any]) -> Row:
    """A definition's columns and its schedule's row, as the dict queries give them."""
    anchor_us = columns["stored_anchor_us"] if columns["anchor_us"] is None else columns["anchor_us"]
    bounds = [(INSTANT, columns[name]) for name in BOUNDS]
    tzdata, payload = columns["tzdata"], columns["payload"]
    return (
        columns["job_id"],
        columns["next_us"] - EPOCH_US,
        columns["version"],
        None if tzdata is None else tzdata.encode(),
        None if anchor_us is None else anchor_us - EPOCH_US,
        columns["name"].encode(),
        None if payload is None else payload.encode(),
        composite(bounds) if any(value is not None for _, value in bounds) else None,
        composite([(TYPES.get(name, 0), columns[name]) for name in COMMON]),
    )
