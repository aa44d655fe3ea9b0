"""The change feed's records, as Debezium 3.7 wrote them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cronstream.changes import Change, Heartbeat, decode
from cronstream.records import PoisonRecord


def envelope(table: str, after: dict[str, Any] | None, op: str = "c", **source: Any) -> bytes:
    where = {"table": table, "ts_ms": 1795975632601, "ts_us": 1795975632601142, **source}
    return json.dumps({"before": None, "after": after, "source": where, "op": op}).encode()


ROW = {"change_id": 7, "job_id": 3, "revision": 12, "kind": "update", "changed_at": "2026-11-29T18:07:12.601058Z"}


def test_an_edit_is_a_change_with_its_commit_time() -> None:
    assert decode(envelope("job_changes", ROW)) == Change(3, 7, 12, "update", 1795975632601142)


def test_a_heartbeat_s_upsert_is_a_heartbeat_both_times() -> None:
    beat = {"id": 1, "beat_at": "2026-11-29T18:07:12.601058Z"}
    for op in ("c", "u"):
        assert decode(envelope("capture_heartbeat", beat, op)) == Heartbeat(1795975632601142)


def test_milliseconds_do_where_microseconds_are_missing() -> None:
    change = decode(envelope("job_changes", ROW, ts_us=None))
    assert change == Change(3, 7, 12, "update", 1795975632601000)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b'{"ts_ms":1795975632600}',
        envelope("job_changes", None, "d"),
        envelope("capture_heartbeat", None, "t"),
        envelope("job_definitions", {"job_id": 1}),
    ],
    ids=["tombstone", "debezium's own heartbeat", "delete", "truncate", "another table"],
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
        envelope("job_changes", None),
        envelope("job_changes", {**ROW, "job_id": "3"}),
        envelope("job_changes", {**ROW, "kind": "truncate"}),
        envelope("job_changes", {"job_id": 3}),
        envelope("job_changes", ROW, ts_us="soon"),
    ],
)
def test_what_cannot_be_read_is_poison(value: bytes) -> None:
    with pytest.raises(PoisonRecord):
        decode(value)
