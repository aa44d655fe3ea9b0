"""Every record can be set aside: none is too odd or too large to be produced again."""

from __future__ import annotations

from cronstream.dead_letters import KEPT_BYTES, Record, letter_of


def record(key: bytes | None, value: bytes | None, size: int = 0) -> Record:
    return Record("topic", 3, 14, key, value, [("own", b"x" * size)])


def test_a_letter_is_the_record_with_where_and_why() -> None:
    letter = letter_of(record(b"k", b"v"), "poison_record", "not a batch", "history")
    assert (letter.key, letter.value) == (b"k", b"v")
    headers = dict(letter.headers)
    assert headers["own"] == b""
    assert headers["cronstream-reason"] == b"poison_record"
    assert headers["cronstream-error"] == b"not a batch"
    assert (headers["cronstream-topic"], headers["cronstream-partition"]) == (b"topic", b"3")
    assert headers["cronstream-offset"] == b"14"


def test_neither_key_nor_value_is_an_empty_value() -> None:
    assert letter_of(record(None, None), "r", "e", "s").value == b""


def test_what_is_too_large_is_cut_and_says_so() -> None:
    for large in (record(b"k", bytes(1_048_000)), record(bytes(1_000_000), b"v"), record(None, b"v", 950_000)):
        letter = letter_of(large, "r", "e" * 1_000_000, "s")
        size = len(letter.key or b"") + len(letter.value) + sum(len(n) + len(v) for n, v in letter.headers)
        assert size < 3 * KEPT_BYTES
        assert int(dict(letter.headers)["cronstream-cut"]) > 900_000


def test_a_value_of_its_own_takes_the_records_place() -> None:
    assert letter_of(record(b"k", b"whole"), "r", "e", "s", b"part").value == b"part"
