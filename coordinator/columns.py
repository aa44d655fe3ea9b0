"""From the rows of ``load`` to columns, as many as there are, at two or three microseconds each.

What most rows share, namely all but the job's id, name, payload and times, comes
as one composite value; its bytes are looked up, and read only when they are new.
A plain interval needs no rule of its own: its period and one of its times say all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import psycopg
from psycopg.types.numeric import Int8BinaryLoader
from psycopg.types.string import ByteaBinaryLoader

from coordinator.arrivals import Job, JobColumns
from coordinator.composite import BOUND_US, EPOCH_US, fields_of
from coordinator.rows import job_of
from coordinator.rules import NO_RULE, Rule, hangs_on_name, policy_of, rule_of
from coordinator.writer import NONE
from coordinator.zone_data import lower_bound
from cronstream.bodies import Policy, WorkPacker
from cronstream.records import MAX_BYTES, Int64s
from cronstream.schedule import TZDATA_VERSION
from cronstream.schedule.interval import LAST_US

Row = tuple[int, int, int, bytes | None, int | None, bytes, bytes | None, bytes | None, bytes]
"""A row of ``load``, with ``adapt``: job_id, next_run_at, version, tzdata, anchor, name, payload, bounds, common."""

COMMON: Final = (
    "enabled", "cron", "every_us", "timezone", "misfire_policy", "misfire_grace_us", "catch_up_limit", "dst_gap",
    "dst_overlap", "spread_seconds", "tenant", "handler", "overlap_policy", "max_attempts", "backoff_seconds",
    "backoff_factor", "max_backoff_us", "jitter", "timeout_seconds",
)  # fmt: skip
"""The fields of ``common``, in the query's order; ``bounds`` has those below and is NULL without any."""
BOUNDS: Final = ("run_at_us", "starts_at_us", "ends_at_us")
_NO_BOUNDS: Final[dict[str, Any]] = dict.fromkeys(BOUNDS)
_NO_ANCHOR: Final = BOUND_US
_OURS: Final = TZDATA_VERSION.encode()
_MOST_COMMONS: Final = 65_536


def adapt(connection: psycopg.Connection[Any]) -> None:
    """Read binary answers as ``Row``: texts and composites as their bytes, instants as whole numbers since 2000."""
    adapters = connection.adapters
    adapters.register_loader("text", ByteaBinaryLoader)
    adapters.register_loader("record", ByteaBinaryLoader)
    adapters.register_loader("timestamptz", Int8BinaryLoader)


def instant_us(row: Row) -> int | None:
    """The row's ``next_run_at`` in microseconds since 1970; None: before all others."""
    us = row[1] + EPOCH_US
    return us if us > -BOUND_US else None


@dataclass(frozen=True, slots=True)
class _Common:
    """What rows share, read once."""

    columns: Mapping[str, Any]
    rule: Rule | None = None
    """Of every row without bounds (an interval's terms alone); None: each row is read by itself."""
    period_us: int = 0
    """Of an interval."""
    pack: Callable[[bytes, bytes | None], bytes] = WorkPacker("", "", Policy()).pack
    """Name and payload to packed work."""


class Columns:
    """Reads rows, and remembers what they had in common. One thread's."""

    def __init__(self) -> None:
        self._commons: dict[bytes, _Common] = {}

    def of(self, rows: Sequence[Row], now_us: int) -> JobColumns:
        """Rows read at ``now_us`` or after, at least one. One that cannot be read becomes a job to be set aside."""
        job_ids, next_run_at, versions, tzdata, anchors, names, payloads, bounds, commons = zip(*rows, strict=True)
        least_us = _since_1970(next_run_at)
        if set(tzdata) != {_OURS}:
            least_us = _planned_with(tzdata, least_us, now_us)
        shared = [self._common(data) for data in commons]
        works = [common.pack(name, payload) for common, name, payload in zip(shared, names, payloads, strict=True)]
        period_us = np.array([common.period_us for common in shared], np.int64)
        anchor_us = _since_1970([_NO_ANCHOR if anchor is None else anchor for anchor in anchors])
        alone = [
            common.rule is None or bound is not None or len(work) > MAX_BYTES
            for common, bound, work in zip(shared, bounds, works, strict=True)
        ] | ((period_us > 0) & (np.abs(anchor_us) >= LAST_US))
        columns = JobColumns(
            np.array(job_ids, np.int64),
            _interval_times(least_us, period_us, anchor_us),
            np.array(versions, np.int64),
            period_us,
            [common.rule or NO_RULE for common in shared],
            works,
        )
        self._ask_schedules(columns, least_us, np.flatnonzero((period_us == 0) & ~alone).tolist())
        for index in np.flatnonzero(alone).tolist():
            anchor = None if anchors[index] is None else int(anchor_us[index])
            columns.put(index, self._read_alone(rows[index], int(least_us[index]), anchor))
        return columns

    def _common(self, data: bytes) -> _Common:
        found = self._commons.get(data)
        if found is None:
            if len(self._commons) == _MOST_COMMONS:
                self._commons.clear()
            found = self._commons[data] = _read_common(dict(zip(COMMON, fields_of(data), strict=True)))
        return found

    @staticmethod
    def _ask_schedules(columns: JobColumns, least_us: Int64s, asked: list[int]) -> None:
        """The first time of rows whose rule is not a plain interval: one question for all that are alike."""
        answers: dict[tuple[int, int], int | str] = {}
        rules, times = columns.rules, least_us.tolist()
        for index in asked:
            rule, least = rules[index], times[index]
            answer = answers.get((id(rule), least))
            if answer is None:
                answer = answers[id(rule), least] = _first(rule, least)
            if isinstance(answer, str):
                columns.errors[index] = answer
            else:
                columns.next_us[index] = answer

    def _read_alone(self, row: Row, least_us: int, anchor_us: int | None) -> Job:
        """The usual way, for a row that not all of this holds for."""
        job_id, _, version, _, _, name, payload, bounds, common = row
        given = {
            **self._common(common).columns,
            **(_NO_BOUNDS if bounds is None else dict(zip(BOUNDS, fields_of(bounds), strict=True))),
            "name": name.decode(),
            "payload": None if payload is None else payload.decode(),
            "anchor_us": anchor_us,
        }
        return job_of(job_id, given, anchor_us, least_us, version)


def _read_common(columns: dict[str, Any]) -> _Common:
    """What holds for all rows with these columns. What cannot be read, or hangs on the job's name, is left to each."""
    try:
        packer = WorkPacker(columns["tenant"], columns["handler"], policy_of(columns))
        rule = rule_of({**columns, **_NO_BOUNDS, "name": "", "anchor_us": None}, 0)
    except ValueError:  # a ScheduleError is one
        return _Common(columns)
    if hangs_on_name(columns) or rule.schedule is None:
        return _Common(columns, pack=packer.pack)
    if rule.period_us:
        return _Common(columns, rule.terms(), rule.period_us, packer.pack)
    return _Common(columns, rule, 0, packer.pack)


def _since_1970(instants: Sequence[int]) -> Int64s:
    """Postgres' whole numbers, infinity bounded."""
    return np.clip(np.array(instants, np.int64), -BOUND_US - EPOCH_US, BOUND_US - EPOCH_US) + EPOCH_US


def _planned_with(tzdata: Sequence[bytes | None], next_us: Int64s, now_us: int) -> Int64s:
    """Lower bounds, where rows were planned with other time zone data."""
    pairs = zip(tzdata, next_us.tolist(), strict=True)
    return np.array([lower_bound(us, None if version is None else version.decode(), now_us) for version, us in pairs])


def _interval_times(least_us: Int64s, period_us: Int64s, anchor_us: Int64s) -> Int64s:
    """The first time of each interval at or after ``least_us``; of other rows ``least_us``."""
    periods = np.maximum(period_us, 1)
    first_us = np.maximum(least_us + (anchor_us - least_us) % periods, anchor_us)
    first_us[first_us >= LAST_US] = NONE
    return np.where(period_us > 0, first_us, least_us)


def _first(rule: Rule, least_us: int) -> int | str:
    """The rule's first time at or after an instant, or why it cannot be told."""
    try:
        first = rule.next_after(least_us - 1)
    except Exception as error:
        return str(error) or repr(error)
    return NONE if first is None else first
