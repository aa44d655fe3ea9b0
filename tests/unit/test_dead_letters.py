"""Every record can be set aside: none is too odd or too large to be produced again."""

from __future__ import annotations

from cronstream.dead_letters import KEPT_BYTES, Record, Subject, letter_of
from cronstream.records import Item, Kind


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


def test_a_letter_about_a_run_names_it() -> None:
    subject = Subject.of(Item(Kind.FAILED, 7, 1_780_000_000_000_000, 3, 5), "acme", "report")
    headers = dict(letter_of(record(None, b"v"), "exhausted", "exit 1", "streams", subject=subject).headers)
    assert headers["cronstream-job-id"] == b"7"
    assert headers["cronstream-scheduled-time"] == b"2026-05-28T20:26:40Z"
    assert headers["cronstream-attempts"] == b"5"
    assert headers["cronstream-key"] == b"7-1780000000000000-3"


def test_a_run_beyond_the_calendar_can_be_set_aside_too() -> None:
    subject = Subject.of(Item(Kind.FAILED, 7, 2**62), "acme", "report")
    assert dict(subject.headers)["cronstream-scheduled-time"] == str(2**62).encode()
