"""Foreign text is made safe to store."""

from __future__ import annotations

import pytest

from workers.text import clean


@pytest.mark.parametrize(
    ("text", "limit", "safe"),
    [
        (None, 10, None),
        ("plain", 10, "plain"),
        ("", 0, ""),
        ("a\0b", 10, "a\N{REPLACEMENT CHARACTER}b"),
        ("a\ud800b", 10, "a?b"),
        ("abcdefgh", 6, "abc…"),
        ("äöüäöü", 8, "äö…"),
        ("abc", 2, ""),
    ],
)
def test_clean(text: str | None, limit: int, safe: str | None) -> None:
    assert clean(text, limit) == safe
    if safe is not None:
        assert len(safe.encode()) <= limit
