"""Postgres in memory: the leader's named queries over definitions, changes and schedules.

Each query is one statement, as in sql/queries/coordinator.sql, and sees what was committed before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.columns import Row
from cronstream.schedule import TZDATA_VERSION
from tests.support.composite import load_row

DEFAULTS: dict[str, Any] = {
    "tenant": "default", "cron": None, "every_us": None, "run_at_us": None, "anchor_us": None, "timezone": "UTC",
    "starts_at_us": None, "ends_at_us": None, "enabled": True, "misfire_policy": "FIRE_NOW",
    "misfire_grace_us": 5_000_000, "catch_up_limit": 3, "dst_gap": "auto", "dst_overlap": "auto", "spread_seconds": 0,
}  # fmt: skip
WORK: dict[str, Any] = {
    "handler": "log", "payload": "{}", "overlap_policy": "allow", "max_attempts": 5, "backoff_seconds": 30.0,
    "backoff_factor": 2.0, "max_backoff_us": 3_600_000_000, "jitter": "full", "timeout_seconds": 300.0,
}  # fmt: skip
TIMES = ("cron", "every_us", "run_at_us")


@dataclass(slots=True)
class ScheduleRow:
    next_us: int | None
    version: int
    revision: int
    anchor_us: int | None
    tzdata: str = TZDATA_VERSION


@dataclass(frozen=True, slots=True)
class ChangeRow:
    change_id: int
    job_id: int
    revision: int
    committed_us: int
    previous: Mapping[str, Any] | None


@dataclass(slots=True)
class RequestRow:
    number: int
    kind: str
    job_id: int
    parameters: dict[str, Any]
    cursor_us: int | None = None
    published: int = 0
    state: str = "open"
    reason: str | None = None


def none(value: int) -> int | None:
    return None if value == -1 else value


class Tables:
    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self.definitions: dict[int, dict[str, Any]] = {}
        self.changes: dict[int, ChangeRow] = {}
        self.schedules: dict[int, ScheduleRow] = {}
        self.requests: dict[int, RequestRow] = {}
        self.offsets: dict[int, int] = {}
        self.token = 0
        self.tzdata_planned: str | None = None
        self.closed_us: dict[int, int] = {}
        """When each change was closed."""
        self._last = 0

    # ---- what users do -----------------------------------------------------------------------

    def edit(self, job_id: int, definition: dict[str, Any] | None, now_us: int) -> ChangeRow:
        """Insert, update or delete; one change, committed now."""
        self._last += 1
        old = self.definitions.pop(job_id, None)
        if definition is not None:
            self.definitions[job_id] = {**definition, "job_id": job_id, "revision": self._last}
        change = ChangeRow(self._last, job_id, self._last, now_us, old)
        self.changes[change.change_id] = change
        return change

    def request(self, kind: str, job_id: int, cursor_us: int | None = None, **parameters: Any) -> RequestRow:
        """A request, committed now."""
        row = RequestRow(len(self.requests) + 1, kind, job_id, parameters, cursor_us)
        self.requests[row.number] = row
        return row

    # ---- what the leader asks ----------------------------------------------------------------

    def read(self, name: str, given: dict[str, Any]) -> list[Any]:
        """The reader's queries: rows as dicts, but for ``load``."""
        rows: list[Any] = getattr(self, f"_{name}")(given)
        return rows

    def _forget_announcements(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"gone": 0}]

    def write(self, name: str, given: dict[str, Any], now_us: int) -> list[tuple[int, int]]:
        """The writer's statements and its question."""
        if name == "read_versions":
            return [(job_id, self.schedules[job_id].version) for job_id in given["job_ids"] if job_id in self.schedules]
        if given["token"] != self.token:
            return [(0, 0)]
        if name == "apply_tail":
            return [(1, self._apply_tail(given))]
        if name == "store_plans":
            done = self._store_plans(given, now_us)
        else:
            done = self._advance(given) if name == "advance" else self._store_steps(given)
        for partition, offset in zip(given["partitions"], given["offsets"], strict=True):
            self.offsets[partition] = max(offset, self.offsets.get(partition, 0))
        return [(1, done)]

    def _apply_tail(self, given: dict[str, Any]) -> int:
        done = 0
        for job_id, published_us in zip(given["job_ids"], given["published_us"], strict=True):
            row = self.schedules.get(job_id)
            if row is not None and row.next_us is not None and row.next_us <= published_us:
                row.next_us, row.version = published_us + 1, row.version + 1
                done += 1
        return done

    def _advance(self, given: dict[str, Any]) -> int:
        done = 0
        columns = (given[name] for name in ("job_ids", "expected", "versions", "next_us"))
        for job_id, expected, version, next_us in zip(*columns, strict=True):
            row = self.schedules.get(job_id)
            if row is not None and row.version == expected:
                row.next_us, row.version, row.tzdata = none(next_us), version, given["tzdata"]
                done += 1
        return done

    def _store_plans(self, given: dict[str, Any], now_us: int) -> int:
        names = ("job_ids", "expected", "versions", "next_us", "revisions", "anchors_us", "gone")
        assert len(set(given["job_ids"])) == len(given["job_ids"]), "a statement writes no row twice"
        matched = set()
        for job_id, expected, version, next_us, revision, anchor_us, gone in zip(
            *(given[name] for name in names), strict=True
        ):
            row = self.schedules.get(job_id)
            if gone:
                if row is not None and row.version == expected:
                    del self.schedules[job_id]
                    matched.add(job_id)
                elif expected == 0:
                    matched.add(job_id)
            elif row is None or row.version == version - 1:
                self.schedules[job_id] = ScheduleRow(none(next_us), version, revision, none(anchor_us))
                matched.add(job_id)
        for change_id in given["change_ids"]:
            if change_id in self.changes and self.changes[change_id].job_id in matched:
                del self.changes[change_id]
                self.closed_us[change_id] = now_us
        return len(matched)

    def _store_steps(self, given: dict[str, Any]) -> int:
        names = ("numbers", "cursors_us", "published", "states", "reasons")
        assert len(set(given["numbers"])) == len(given["numbers"]), "a statement writes no row twice"
        done = 0
        for number, cursor_us, published, state, reason in zip(*(given[name] for name in names), strict=True):
            row = self.requests[number]
            if row.state == "open":
                row.cursor_us = row.cursor_us if cursor_us == -1 else cursor_us
                row.published, row.state, row.reason = published, state, reason
                done += 1
        return done

    def _open_requests(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        rows = [row for row in self.requests.values() if row.state == "open" and row.number > given["after"]]
        return [{"number": row.number, "kind": row.kind} for row in rows[: given["most"]]]

    def _read_requests(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        rows = [self.requests[number] for number in given["numbers"]]
        return [self._request_row(row) for row in rows if row.state == "open"]

    def _request_row(self, row: RequestRow) -> dict[str, Any]:
        definition, schedule = self.definitions.get(row.job_id), self.schedules.get(row.job_id)
        return {
            **dict.fromkeys(("scheduled_us", "ends_us", "most_runs", "run_request_id", "attempt")),
            **(definition or {}),
            "defined": definition is not None,
            "stored_anchor_us": schedule and schedule.anchor_us,
            "number": row.number,
            "kind": row.kind,
            "requested_job_id": row.job_id,
            "published": row.published,
            "cursor_us": row.cursor_us,
            "now_us": self._now_us(),
            **row.parameters,
        }

    def _rule_row(self, job_id: int) -> dict[str, Any]:
        row = self.schedules[job_id]
        definition = self.definitions[job_id]
        return {
            **definition,
            "next_us": row.next_us,
            "version": row.version,
            "stored_anchor_us": row.anchor_us,
            "tzdata": row.tzdata,
        }

    def _open_jobs(self) -> set[int]:
        return {change.job_id for change in self.changes.values()}

    def _load(self, given: dict[str, Any]) -> list[Row]:
        return list(map(load_row, self._due(given)))

    def _due(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        after_us = -(2**63) if given["after_us"] is None else given["after_us"]
        due = sorted(
            (row.next_us, job_id)
            for job_id, row in self.schedules.items()
            if row.next_us is not None
            and (row.next_us, job_id) > (after_us, given["after_id"])
            and row.next_us <= given["until_us"]
            and job_id in self.definitions
            and job_id not in self._open_jobs()
        )
        return [self._rule_row(job_id) for _, job_id in due[: given["most"]]]

    def _load_other_zone_data(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        rows = self._due({**given, "until_us": 2**63, "most": 10**9})
        return [row for row in rows if row["tzdata"] != given["tzdata"]][: given["most"]]

    def _zone_data_planned(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"tzdata_planned": self.tzdata_planned}]

    def _note_zone_data_planned(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        self.tzdata_planned = given["tzdata"]
        return [{}]

    def _read_jobs(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        known = self.schedules.keys() & self.definitions.keys() - self._open_jobs()
        return [self._rule_row(job_id) for job_id in given["job_ids"] if job_id in known]

    def _open_changes(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        rows = sorted(self.changes.values(), key=lambda change: change.change_id)
        return [
            {"change_id": row.change_id, "job_id": row.job_id, "committed_us": row.committed_us}
            for row in rows
            if row.change_id > given["after_id"]
        ][: given["most"]]

    def _read_edits(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        rows = sorted(self.changes.values(), key=lambda change: (change.job_id, change.change_id))
        return [self._edit_row(row) for row in rows if row.job_id in given["job_ids"]]

    def _edit_row(self, change: ChangeRow) -> dict[str, Any]:
        definition = self.definitions.get(change.job_id)
        row = self.schedules.get(change.job_id)
        return {
            **(definition or {}),
            "defined": definition is not None,
            "change_id": change.change_id,
            "job_id": change.job_id,
            "change_revision": change.revision,
            "previous": change.previous,
            "committed_us": change.committed_us,
            "next_us": row and row.next_us,
            "version": row and row.version,
            "stored_anchor_us": row and row.anchor_us,
            "tzdata": row and row.tzdata,
        }
