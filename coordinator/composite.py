"""Postgres' composite values as they travel in binary: a count, then type, length and bytes of each field.

Millions of rows share what few definitions say. The bytes of such a value are
compared as they are, and read once for all rows that carry the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from cronstream.clock import SECOND

EPOCH_US: Final = 946_684_800 * SECOND
"""Where Postgres counts instants from: 2000-01-01, in microseconds since 1970."""
BOUND_US: Final = 2**62
"""Infinity, and what lies near it (as the database's own ``cronstream.us`` has it)."""

_COUNT = struct.Struct("!i")
_FIELD = struct.Struct("!Ii")
_INTERVAL = struct.Struct("!qii")
_DAY_US = 86_400 * SECOND


def bounded(us: int) -> int:
    """Microseconds that other figures can be added to."""
    return min(max(us, -BOUND_US), BOUND_US)


def interval_us(data: bytes) -> int:
    """A span's microseconds, as extract(epoch from span) counts: a year has 365.25 days, a month 30, a day 24 hours."""
    us, days, months = _INTERVAL.unpack(data)
    years, months = int(months / 12), months - 12 * int(months / 12)
    return bounded(us + (days + 30 * months) * _DAY_US + years * 1461 * _DAY_US // 4)


def _whole(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


_READ: Mapping[int, Callable[[bytes], Any]] = {
    16: lambda data: data != b"\0",  # boolean
    20: _whole,
    23: _whole,
    25: bytes.decode,  # text
    701: lambda data: struct.unpack("!d", data)[0],  # double precision
    1184: lambda data: bounded(_whole(data) + EPOCH_US),  # timestamptz
    1186: interval_us,
}


def fields_of(data: bytes) -> list[Any]:
    """The fields of a composite value; instants since 1970 and spans in microseconds."""
    (count,) = _COUNT.unpack_from(data)
    at = _COUNT.size
    fields: list[Any] = []
    for _ in range(count):
        kind, size = _FIELD.unpack_from(data, at)
        at += _FIELD.size
        if size < 0:
            fields.append(None)
            continue
        fields.append(_READ[kind](data[at : at + size]))
        at += size
    return fields
