"""Requests: what a run-now, a backfill or a redrive publishes next. Pure.

A request is published in steps. Each step is planned from the request's row and the
definition as it is then, published, and its cursor stored; only then is the next one read:

    open_requests --read--> Step (items, cursor after them) --published--> stored --read--> ...

So an edit counts from the next step on, a deleted job ends its requests, and a leader that
dies leaves at most one step of a request that is published and not noted. Its successor
finds those runs on the log and goes on behind them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from coordinator.rules import packed_work, rule_of, work_of_row
from cronstream.bodies import pack
from cronstream.clock import to_datetime
from cronstream.records import RUN_KINDS, Item, Kind

REDRIVE = "redrive"
BACKFILL = "backfill"
NO_CURSOR = -1
"""In a column of cursors: it stays as it is."""


Tried = tuple[int, int, int, int]
"""An attempt of a run: (job_id, scheduled time, request_id, attempt)."""


@dataclass(frozen=True, slots=True)
class Step:
    """What a request publishes next, and how its row reads afterwards."""

    number: int
    job_id: int
    items: tuple[Item, ...]
    published: int
    """Runs of the request so far, these included."""
    cursor_us: int = NO_CURSOR
    state: str = "done"
    """open | done | cancelled."""
    reason: str | None = None
    backfill: bool = False

    @property
    def is_last(self) -> bool:
        """True when the request is over with it."""
        return self.state != "open"

    def cancelled(self, reason: str) -> Step:
        """The same request, ended instead."""
        published = self.published - len(self.items)
        return replace(self, items=(), published=published, cursor_us=NO_CURSOR, state="cancelled", reason=reason)


DELETED = "the job was deleted"


def next_step(row: Mapping[str, Any], most: int, unnoted: Collection[Tried] = ()) -> Step | None:
    """The next step of a row of ``read_requests``, of at most so many items; never raises.

    ``unnoted``: attempts on the log that were published for it and perhaps not noted.
    None: there is nothing to publish yet, ask again later. The definition has no plan, without which an interval has
    no anchor; or the time is to come by the row's ``now_us``, as it can be after a clock was set back. Nothing that is
    asked for runs before its time, whoever wrote the row.
    """
    begun = Step(row["number"], row["requested_job_id"], (), row["published"], backfill=row["kind"] == BACKFILL)
    if not row["defined"]:
        return begun.cancelled(DELETED)
    try:
        if begun.backfill:
            if row["every_us"] is not None and row["anchor_us"] is None and row["stored_anchor_us"] is None:
                return None
            return _backfill(begun, row, most, [run_us for _, run_us, _, attempt in unnoted if attempt == 1])
        if row["scheduled_us"] > row["now_us"]:
            return None
        item = _redriven(row) if row["kind"] == REDRIVE else _now(row)
    except Exception as error:
        return begun.cancelled(f"invalid: {str(error) or repr(error)}")
    items = () if (*item.run, item.attempt) in unnoted else (item,)
    return replace(begun, items=items, published=begun.published + 1)


def _run_kind(row: Mapping[str, Any]) -> Kind:
    return RUN_KINDS[row["overlap_policy"]]


def _now(row: Mapping[str, Any]) -> Item:
    return Item(_run_kind(row), row["requested_job_id"], row["scheduled_us"], row["number"], body=packed_work(row))


def _redriven(row: Mapping[str, Any]) -> Item:
    """The run that was given up, under its own identity, with a fresh budget of attempts."""
    work = work_of_row(row)
    policy = msgspec.structs.replace(work.policy, first_attempt=row["attempt"])
    return Item(
        _run_kind(row),
        row["requested_job_id"],
        row["scheduled_us"],
        row["run_request_id"],
        row["attempt"],
        pack(msgspec.structs.replace(work, policy=policy)),
    )


def _backfill(begun: Step, row: Mapping[str, Any], most: int, on_log: list[int]) -> Step | None:
    # By a definition that may be another now: what it published stands, and is not planned again.
    unnoted = [scheduled_us for scheduled_us in on_log if scheduled_us > row["cursor_us"]]
    begun = replace(begun, published=begun.published + len(unnoted))
    # Asked for by hand: a paused job has its times as well.
    rule = rule_of({**row, "enabled": True}, row["stored_anchor_us"])
    kind, work = _run_kind(row), packed_work(row)
    times: list[int] = []
    allowed = min(most, row["most_runs"] - begun.published)
    at_us = rule.next_after(max([row["cursor_us"], *unnoted]))
    over_us = min(row["ends_us"], row["now_us"])
    while at_us is not None and at_us <= over_us and len(times) < allowed:
        times.append(at_us)
        at_us = rule.next_after(at_us)
    items = tuple(Item(kind, begun.job_id, time_us, begun.number, body=work) for time_us in times)
    step = replace(begun, items=items, published=begun.published + len(items))
    if at_us is None or at_us > row["ends_us"]:
        return replace(step, cursor_us=row["ends_us"])
    if step.published >= row["most_runs"]:
        reason = f"stopped after {row['most_runs']} runs; ask for the rest from {to_datetime(at_us).isoformat()} on"
        return replace(step, cursor_us=times[-1] if times else NO_CURSOR, state="cancelled", reason=reason)
    if not times:
        return None
    return replace(step, cursor_us=times[-1], state="open")


def step_parameters(steps: Iterable[Step]) -> dict[str, Any]:
    """The parameters of ``store_steps``."""
    ordered = sorted(steps, key=lambda step: step.number)
    return {
        "numbers": [step.number for step in ordered],
        "cursors_us": [step.cursor_us for step in ordered],
        "published": [step.published for step in ordered],
        "states": [step.state for step in ordered],
        "reasons": [step.reason for step in ordered],
    }
