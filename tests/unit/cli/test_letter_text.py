"""How the record in a dead letter is shown."""

from __future__ import annotations

import pytest

from cli.letter_text import pretty, readable


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'{"command":"run-now","id":"\xc3\xa9"}', '{\n  "command": "run-now",\n  "id": "é"\n}'),
        (b"not json\nat all", "not json\nat all"),
        (b"\xff\x00\x01", "3 bytes: 0xff0001"),
        (b"", "(empty)"),
        (b"[" * 100_000, "[" * 100_000),
    ],
    ids=["json", "text", "bytes", "empty", "deep"],
)
def test_a_value_is_shown_as_what_it_is(value: bytes, shown: str) -> None:
    assert pretty(value) == shown


def test_a_key_or_header_is_one_bounded_line() -> None:
    assert readable(b"acme/report\n") == "acme/report"
    assert readable(b"acme\x1b[2J/\x07") == "acme\\u001b[2J/\\u0007"
    assert readable(b"\xfe") == "0xfe"
    assert readable("é".encode() * 400) == "é" * 250 + "..."
    assert readable(b"\xff" * 501) == "0x" + "ff" * 500 + "..."
    assert readable(b"x" + "é".encode() * 400) == "x" + "é" * 249 + "..."
