"""The change feed's records, as Debezium 3.7 wrote them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cronstream.changes import Changes, Heartbeat, Requested, decode
from cronstream.records import PoisonRecord


def envelope(table: str, after: dict[str, Any] | None, op: str = "c", **source: Any) -> bytes:
    where = {"table": table, "ts_ms": 1795975632601, "ts_us": 1795975632601142, **source}
    return json.dumps({"before": None, "after": after, "source": where, "op": op}).encode()


EDITS = {"number": 1, "change_ids": [7, 8], "job_ids": [3, 4], "announced_at": "2026-11-29T18:07:12.601058Z"}
REQUEST = {"number": 7, "kind": "run-now"}


def test_word_of_edits_names_them_and_their_jobs_with_the_commit_time() -> None:
    assert decode(envelope("announcements", EDITS)) == Changes({7: 3, 8: 4}, 1795975632601142)


def test_a_request_is_a_row() -> None:
    assert decode(envelope("open_requests", REQUEST)) == Requested(7, "run-now", 1795975632601142)


def test_a_heartbeat_s_upsert_is_a_heartbeat_both_times() -> None:
    beat = {"id": 1, "beat_at": "2026-11-29T18:07:12.601058Z"}
    for op in ("c", "u"):
        assert decode(envelope("capture_heartbeat", beat, op)) == Heartbeat(1795975632601142)


def test_milliseconds_do_where_microseconds_are_missing() -> None:
    assert decode(envelope("announcements", EDITS, ts_us=None)) == Changes({7: 3, 8: 4}, 1795975632601000)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b'{"ts_ms":1795975632600}',
        envelope("open_requests", None, "d"),
        envelope("capture_heartbeat", None, "t"),
        envelope("job_definitions", {"job_id": 1}),
        b'{"op":"m","source":{"table":""},"message":{"prefix":"cronstream","content":"e30="}}',
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
        envelope("open_requests", None),
        envelope("open_requests", {**REQUEST, "number": "7"}),
        envelope("open_requests", {**REQUEST, "kind": None}),
        envelope("open_requests", {"number": 7}),
        envelope("open_requests", REQUEST, ts_us="soon"),
        envelope("announcements", None),
        envelope("announcements", {**EDITS, "change_ids": [7]}),
        envelope("announcements", {**EDITS, "change_ids": None}),
        envelope("announcements", {**EDITS, "job_ids": [3, None]}),
        envelope("announcements", {**EDITS, "job_ids": [3, "4"]}),
        envelope("announcements", {**EDITS, "change_ids": [True, 8]}),
        envelope("announcements", {"change_ids": [7]}),
        envelope("announcements", EDITS, ts_us="soon"),
    ],
)
def test_what_cannot_be_read_is_poison(value: bytes) -> None:
    with pytest.raises(PoisonRecord):
        decode(value)
