"""The change feed's records, as Debezium 3.7 wrote them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from cronstream.changes import Changes, Heartbeat, Requested, decode
from cronstream.records import PoisonRecord


def envelope(table: str, after: dict[str, Any] | None, op: str = "c", **source: Any) -> bytes:
    where = {"table": table, "ts_ms": 1795975632601, "ts_us": 1795975632601142, **source}
    return json.dumps({"before": None, "after": after, "source": where, "op": op}).encode()


def message(content: bytes | str, prefix: str = "cronstream", **source: Any) -> bytes:
    text = content if isinstance(content, str) else base64.b64encode(content).decode()
    where = {"schema": "", "table": "", "ts_ms": 1795975632601, "ts_us": 1795975632601142, **source}
    return json.dumps({"op": "m", "source": where, "message": {"prefix": prefix, "content": text}}).encode()


EDITS = b'{"changes": [[7, 3], [8, 4]]}'
REQUEST = {"number": 7, "kind": "run-now"}


def test_word_of_edits_names_them_and_their_jobs_with_the_commit_time() -> None:
    assert decode(message(EDITS)) == Changes({7: 3, 8: 4}, 1795975632601142)


def test_a_request_is_a_row() -> None:
    assert decode(envelope("open_requests", REQUEST)) == Requested(7, "run-now", 1795975632601142)


def test_a_heartbeat_s_upsert_is_a_heartbeat_both_times() -> None:
    beat = {"id": 1, "beat_at": "2026-11-29T18:07:12.601058Z"}
    for op in ("c", "u"):
        assert decode(envelope("capture_heartbeat", beat, op)) == Heartbeat(1795975632601142)


def test_milliseconds_do_where_microseconds_are_missing() -> None:
    assert decode(message(EDITS, ts_us=None)) == Changes({7: 3, 8: 4}, 1795975632601000)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b'{"ts_ms":1795975632600}',
        envelope("open_requests", None, "d"),
        envelope("capture_heartbeat", None, "t"),
        envelope("job_definitions", {"job_id": 1}),
        message(b"{", prefix="somebody else's"),
    ],
    ids=["tombstone", "debezium's own heartbeat", "delete", "truncate", "another table", "another's message"],
)
def test_what_says_nothing_is_none(value: bytes | None) -> None:
    assert decode(value) is None


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff\xfe",
        b'{"op":"c"}',
        b'{"op":"c","source":null,"after":null}',
        b'{"op":"m"}',
        envelope("open_requests", None),
        envelope("open_requests", {**REQUEST, "number": "7"}),
        envelope("open_requests", {**REQUEST, "kind": None}),
        envelope("open_requests", {"number": 7}),
        envelope("open_requests", REQUEST, ts_us="soon"),
        message("not base64"),
        message(b"{"),
        message(b"[]"),
        message(b"{}"),
        message(b'{"changes": [7, 3]}'),
        message(b'{"changes": [[7]]}'),
        message(b'{"changes": [[7, "3"]]}'),
        message(b'{"changes": [[true, 3]]}'),
        message(EDITS, ts_us="soon"),
    ],
)
def test_what_cannot_be_read_is_poison(value: bytes) -> None:
    with pytest.raises(PoisonRecord):
        decode(value)
