"""Rows of ``load`` in columns say what the same rows say one by one."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.arrivals import JobColumns
from coordinator.columns import Columns
from coordinator.composite import BOUND_US, EPOCH_US, fields_of, interval_us
from coordinator.rows import jobs_of
from cronstream.bodies import Policy, Work, WorkPacker, pack, work_of
from cronstream.schedule import TZDATA_VERSION
from tests.support.composite import load_row
from tests.unit.coordinator.rows import SECOND, columns

NOW = 1_800_000_000 * SECOND
SCHEDULES: list[dict[str, Any]] = [
    {"every_us": 7 * SECOND},
    {"every_us": 7 * SECOND, "anchor_us": NOW + 3600 * SECOND},
    {"every_us": 7 * SECOND, "anchor_us": BOUND_US},
    {"every_us": 90_000_001, "anchor_us": NOW - 11},
    {"every_us": 90 * SECOND, "spread_seconds": 60},
    {"every_us": 90 * SECOND, "starts_at_us": NOW + 5},
    {"every_us": 90 * SECOND, "ends_at_us": NOW + 100 * SECOND},
    {"every_us": 3},
    {"cron": "*/5 * * * *"},
    {"cron": "H H * * *"},
    {"cron": "0 9 * * 1-5", "timezone": "Europe/Berlin", "ends_at_us": NOW + 86_400 * 20 * SECOND},
    {"cron": "0 9 * * 1-5", "timezone": "Nowhere/Land"},
    {"cron": "no such thing"},
    {"run_at_us": NOW + 3},
    {"run_at_us": NOW - 3, "spread_seconds": 10},
    {"cron": "* * * * *", "enabled": False},
    {},
]
WORKS: list[dict[str, Any]] = [
    {},
    {"payload": None},
    {"payload": '{"pad": "%s"}' % ("x" * 300)},
    {"handler": "http", "overlap_policy": "queue", "tenant": "größer"},
    {"max_attempts": 0},
    {"timeout_seconds": float("nan")},
    {"misfire_policy": "SKIP", "misfire_grace_us": 0},
]
LEAST = st.sampled_from([NOW - 10 * SECOND, NOW, NOW + 1, NOW + 61 * SECOND])
ROWS = st.builds(
    lambda schedule, work, least_us, anchor_us, tzdata, name: columns(
        **schedule, **work, next_us=least_us, stored_anchor_us=anchor_us, tzdata=tzdata, name=name, version=3
    ),
    st.sampled_from(SCHEDULES),
    st.sampled_from(WORKS),
    LEAST,
    st.sampled_from([None, NOW - 5 * SECOND, NOW]),
    st.sampled_from([TZDATA_VERSION, TZDATA_VERSION, "1999a", None]),
    st.sampled_from(["job", "n" * 40, "täglich" * 40, ""]),
)


def same(found: JobColumns, expected: JobColumns) -> None:
    for name in ("job_id", "next_us", "version", "period_us"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
    assert (found.works, found.errors) == (expected.works, expected.errors)
    sound = [index for index in range(len(found)) if index not in expected.errors]
    assert [found.rules[index] for index in sound] == [expected.rules[index] for index in sound]


@settings(max_examples=200, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=12))
def test_as_if_each_were_read_alone(given_rows: list[dict[str, Any]]) -> None:
    rows = [{**row, "job_id": number} for number, row in enumerate(given_rows, 1)]
    expected = JobColumns.of(jobs_of(rows, NOW))
    reading = Columns()
    for _ in range(2):  # what is new, and what is known
        same(reading.of([load_row(row) for row in rows], NOW), expected)


def test_a_payload_that_fits_no_record_is_a_job_to_be_set_aside() -> None:
    row = columns(job_id=1, next_us=NOW, version=1, stored_anchor_us=NOW, tzdata=TZDATA_VERSION, every_us=SECOND)
    row["payload"] = "é" * 140_000
    found = Columns().of([load_row(row)], NOW)
    same(found, JobColumns.of(jobs_of([row], NOW)))
    assert "more than a record's" in found.errors[0]


def test_plain_intervals_have_no_rule_of_their_own_and_crons_share_theirs() -> None:
    rows = [
        columns(job_id=n, next_us=NOW, version=1, stored_anchor_us=NOW, tzdata=TZDATA_VERSION, name=f"j{n}", **times)
        for times in ({"every_us": 9 * SECOND}, {"cron": "* * * * *"})
        for n in range(3)
    ]
    found = Columns().of([load_row(row) for row in rows], NOW)
    assert len({id(rule) for rule in found.rules[:3]}) == len({id(rule) for rule in found.rules[3:]}) == 1
    assert found.rules[0].schedule is None
    assert found.period_us.tolist() == [9 * SECOND] * 3 + [0] * 3


def test_an_instant_beyond_all_is_bounded() -> None:
    for infinite, bound_us in ((-(2**63), -BOUND_US), (2**63 - 1, BOUND_US)):
        for times in ({"cron": "* * * * *"}, {"every_us": SECOND}):
            row = columns(next_us=bound_us, job_id=1, version=1, stored_anchor_us=NOW, tzdata=TZDATA_VERSION, **times)
            found = Columns().of([(1, infinite, *load_row(row)[2:])], NOW)
            same(found, JobColumns.of(jobs_of([row], NOW)))


@pytest.mark.parametrize(
    ("us", "days", "months", "expected"),
    [
        (1, 0, 0, 1),
        (-5, 2, 0, 2 * 86_400 * SECOND - 5),
        (0, 0, 1, 30 * 86_400 * SECOND),
        (0, 0, 25, (2 * 1461 * 86_400 * SECOND) // 4 + 30 * 86_400 * SECOND),
        (0, 0, -1, -30 * 86_400 * SECOND),
        (0, 0, -13, -(1461 * 86_400 * SECOND) // 4 - 30 * 86_400 * SECOND),
        (2**63 - 1, 0, 0, BOUND_US),
    ],
)
def test_spans_count_as_extract_epoch_does(us: int, days: int, months: int, expected: int) -> None:
    assert interval_us(struct.pack("!qii", us, days, months)) == expected


def test_a_composite_is_read_field_by_field() -> None:
    data = bytes.fromhex(
        "00000005"
        "000000100000000101"  # true
        "00000019ffffffff"  # NULL
        "0000001900000003"
        "c3a978"  # "éx"
        "00000017000000040000002a"  # 42
        "000004a0000000080000000000000001"  # a microsecond into 2000
    )
    assert fields_of(data) == [True, None, "éx", 42, EPOCH_US + 1]


@settings(deadline=None)
@given(
    st.text(max_size=300),
    st.text(max_size=300),
    st.text(max_size=40),
    st.one_of(st.none(), st.binary(max_size=400), st.integers(250, 70_000).map(bytes)),
    st.integers(1, 300),
)
def test_a_packer_writes_what_pack_writes(
    tenant: str, name: str, handler: str, payload: bytes | None, attempts: int
) -> None:
    policy = Policy(max_attempts=attempts)
    packed = WorkPacker(tenant, handler, policy).pack(name.encode(), payload)
    assert packed == pack(Work(tenant, name, handler, payload, policy))
    assert work_of(packed).name == name


def test_columns_choose_positions() -> None:
    rows = [
        columns(job_id=n, next_us=NOW, version=n, stored_anchor_us=NOW, tzdata=TZDATA_VERSION, every_us=n * SECOND)
        for n in (1, 2, 3)
    ]
    jobs = JobColumns.of(jobs_of(rows, NOW)).only(np.array([2, 0]))
    assert (jobs.job_id.tolist(), jobs.period_us.tolist()) == ([3, 1], [3 * SECOND, SECOND])
