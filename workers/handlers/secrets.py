"""What a request carries that its answer must not bring into outputs and logs.

Targets echo what they were sent, and clients name it in their errors.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Self
from urllib.parse import unquote, urlsplit

HIDDEN = "***"
_SECRET_NAMES = re.compile(r"auth|cookie|token|secret|password|api-?key|signature|credential", re.IGNORECASE)
_SCHEMES = re.compile(r"^(bearer|basic|token|digest)\s+", re.IGNORECASE)
_SHORTEST = 4
"""Shorter ones are everywhere in any text, and no secrets."""


class Secrets:
    """The texts to hide."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = sorted({text for text in texts if len(text) >= _SHORTEST}, key=len, reverse=True)

    @classmethod
    def of(cls, url: str, headers: Mapping[str, str]) -> Self:
        """The values of headers that sound secret, with and without their scheme, and the url's password."""
        values = [text.strip() for name, text in headers.items() if _SECRET_NAMES.search(name)]
        return cls([*values, *(_SCHEMES.sub("", text) for text in values), *_of_url(url)])

    def hide(self, text: str) -> str:
        """``text`` without them, and without the beginning of one at its end: it may be cut there."""
        for secret in self._texts:
            text = text.replace(secret, HIDDEN)
        for secret in self._texts:
            for length in range(len(secret) - 1, _SHORTEST - 1, -1):
                if text.endswith(secret[:length]):
                    return text[:-length] + HIDDEN
        return text


def _of_url(url: str) -> list[str]:
    """Its password as written, as meant, and as the client sends it."""
    try:
        parts = urlsplit(url)
        user, password = parts.username or "", parts.password
    except ValueError:
        return []
    if password is None:
        return []
    basic = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
    return [password, unquote(password), basic]
