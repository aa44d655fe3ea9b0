"""Foreign text, made safe to store: bounded, and free of what Postgres and UTF-8 refuse."""

from __future__ import annotations

CUT = "…"


def clean(text: str | None, limit_bytes: int) -> str | None:
    """``text`` without NULs and lone surrogates, at most ``limit_bytes`` of UTF-8; the end is cut off."""
    if text is None:
        return None
    if text.isascii() and "\0" not in text and len(text) <= limit_bytes:
        return text
    raw = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
    if len(raw) <= limit_bytes:
        return raw.decode()
    mark = CUT.encode()
    if limit_bytes < len(mark):
        return ""
    return raw[: limit_bytes - len(mark)].decode("utf-8", "ignore") + CUT
