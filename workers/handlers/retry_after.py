"""What a Retry-After header asks for."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime

LONGEST_SECONDS = 24 * 3600
"""More is cut to this: no backoff is longer."""


def not_before_us(header: str | None, now_us: int) -> int | None:
    """The instant before which no further request is wanted; None where none is named.

    Seconds from now, or an HTTP date: RFC 9110, 10.2.3.
    """
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return now_us + min(int(text[:9]), LONGEST_SECONDS) * 1_000_000
    try:
        named = parsedate_to_datetime(text)
    except ValueError:
        return None
    named = named if named.tzinfo else named.replace(tzinfo=UTC)
    instant_us = int(named.timestamp()) * 1_000_000
    return min(instant_us, now_us + LONGEST_SECONDS * 1_000_000) if instant_us > now_us else None
