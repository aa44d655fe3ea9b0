"""What the leader reads from Postgres: due jobs out to the horizon, edited jobs, requests.

One thread, one connection; it decides nothing and hands everything to the
dispatcher in the order of reading. That order is what makes reading safe while
the dispatcher goes on firing: of two arrivals the later one was read later.

Extending the horizon from U to U' must not miss a job that just left the wheel:
first the dispatcher keeps what falls due up to U', then all that it had handed
to the writer is flushed, and only then (U, U'] is read.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import orjson
import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import set_json_loads

from coordinator.arrivals import MOST_EDITS, Audited, Edits, Forget, Horizon, JobColumns, Loaded, Mailbox
from coordinator.asking import Ask, Asking, Stopping
from coordinator.audit import OpenChange, missed, overdue
from coordinator.database_clock import DatabaseClock
from coordinator.expected import Expected
from coordinator.handing import Handing
from coordinator.loading import Loading
from coordinator.posted import Posted
from coordinator.request_reader import RequestReader
from coordinator.rows import edits_of, jobs_of
from coordinator.slices import LARGEST, PART, Slices
from coordinator.tail import Tail
from coordinator.writer import Writer
from cronstream.changes import Changes
from cronstream.clock import SECOND, Clock
from cronstream.schedule import TZDATA_VERSION
from cronstream.settings import CoordinatorSettings

log = logging.getLogger(__name__)

_EDITS_AT_ONCE = 2000
"""Edits read at once, or some more: capture brings a thousand of a large statement together."""
_EDITS_BETWEEN_SLICES = 500
"""Edits that were open when the term began: a million of them do not hold up what is due."""
_OPEN_AT_ONCE = 10_000
_LAST_ID = 2**63 - 1
_TRIES_FOR_A_ROW = 20
_AUDITS_LEFT_OUT = 2
"""In a row, while edits wait to be read."""
_READING_FOR_ONE_AUDIT = 10
"""Times as long as an audit looked at open changes there is none: with a million open it would do little else."""


class Reader:
    """Loads, follows and audits; see the module's text."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        clock: Clock,
        database_clock: DatabaseClock,
        mailbox: Mailbox,
        stop: threading.Event,
        end_term: Callable[[str], None],
        tail: Tail | None = None,
        ask: Ask | None = None,
        largest_slice: int = LARGEST,
    ) -> None:
        """``tail``: what the last leader published and perhaps did not note.

        ``ask`` answers the reader's queries at once, rows as dicts but for ``load``; by default Postgres does.
        """
        self._settings = settings
        self._clock = clock
        self._database_clock = database_clock
        self._handing = Handing(mailbox, stop)
        self._stop = stop
        self._end_term = end_term
        self._delivered: queue.SimpleQueue[Changes | int] = queue.SimpleQueue()
        """What the feed brought, in its order: edits, or a heartbeat's commit time."""
        self._unmatched: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
        self._wake = threading.Event()
        tail = tail or Tail()
        self._overdue_us = None if tail.reaches_us is None else tail.reaches_us + 1
        """What is due up to then is not read yet; None: it is."""
        self.requests = RequestReader(settings, mailbox, self._wake.set, tail.requested)
        self._posted = Posted()
        self._unseen: dict[int, tuple[int, int]] = {}
        """Changes of the feed whose row was not visible: by change id, (job_id, tries)."""
        self._horizon_us = 0
        self._first_audit = self._audit_steps(first=True)
        self._audited_ns: int | None = None
        """When the last audit ended; None: the first one did not yet."""
        self._looked_ns = 0
        """For how long it looked at open changes."""
        self._told = 0
        self._asking = Asking(
            settings, "reader", stopping=stop.is_set, pause=stop.wait, adapt=_read_json, row_factory=dict_row
        )
        self._ask_rows = self._asking if ask is None else ask
        self._slices = Slices(
            Loading(settings, ask, stopping=stop.is_set, pause=stop.wait),
            self._handing,
            database_clock,
            has_to_look_up=self._has_to_look_up,
            look_up=self._look_up,
            largest=largest_slice,
        )
        self._expected = Expected()
        self.reached_us: int | None = None
        """The newest commit among heartbeats and edits of the feed; every edit that came before was handed over."""
        self._heard_us: int | None = None
        """When the feed last brought anything."""
        self.capture_missed = 0
        self.loaded_through = False
        """True once the whole horizon was read for the first time."""
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    # ---- called from other threads ---------------------------------------------------------

    def start(self, writer: Writer) -> None:
        """Begin reading; ``writer`` tells which writes are done."""
        self.follow_writer(writer)
        self._thread.start()

    def follow_writer(self, writer: Writer) -> None:
        """Before the first turn."""
        self._handing.follow_writer(writer)

    def changed(self, changes: Changes) -> None:
        """The feed saw edits."""
        self._delivered.put(changes)
        self._heard_us = self._database_clock.now_us()
        self._wake.set()

    def beat(self, committed_us: int) -> None:
        """The feed saw a heartbeat."""
        self._delivered.put(committed_us)
        self._heard_us = self._database_clock.now_us()

    def unmatched(self, job_ids: list[int]) -> None:
        """The writer found rows that were not as expected."""
        self._unmatched.put(job_ids)
        self._wake.set()

    def join(self) -> None:
        """After the stop event was set."""
        self._wake.set()
        self._thread.join(5)
        self._asking.close()
        self._slices.close()

    # ---- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while True:
                self.turn()
                self._wake.wait(0.02 if self._unseen or self.requests.unseen else 0.25)
                self._wake.clear()
        except Stopping:
            pass
        except Exception:
            log.exception("The reader failed")
            self._end_term("the reader failed")

    def turn(self) -> None:
        """Read what there is to read. Raises Stopping."""
        if self.loaded_through:
            self._follow()
        if (as_of := self._handing.flushed) > self._told:
            # Nothing is read, yet it says up to where rows are right: what waits for that stays small.
            self._told = as_of
            self._handing.put(Loaded(JobColumns.of(()), as_of))
        if self._audited_ns is not None and self._audit_is_due(self._clock.boot_ns() - self._audited_ns):
            self._audit()
        if not self.loaded_through:
            self._load_first_horizon()
            self._plan_zones_anew()
        else:
            self._extend_when_due()

    def _extend_when_due(self) -> None:
        if self._database_clock.now_us() + self._ahead_us() > self._horizon_us:
            self._extend_horizon()

    def _ahead_us(self) -> int:
        """How long before its end the horizon is extended: half of it, and what it takes to wait for the writer."""
        return int(self._settings.horizon_seconds * SECOND / 2) + self._handing.behind_us

    def _audit_is_due(self, since_ns: int) -> bool:
        # It reads every open change: those that wait to be read by their turn are read for nothing.
        times = 1 if self._delivered.empty() else _AUDITS_LEFT_OUT + 1
        return since_ns > max(self._settings.audit_seconds * times * 1e9, _READING_FOR_ONE_AUDIT * self._looked_ns)

    def _follow(self) -> None:
        """Plan what the feed has brought since, and read again what the writer found strange."""
        if self._stop.is_set():
            raise Stopping
        for job_ids in _drain(self._unmatched):
            self._read_again(job_ids)
        reached_us = self.reached_us or 0
        came: dict[int, int] = {}
        for delivered in _drain(self._delivered):
            reached_us = max(reached_us, delivered.committed_us if isinstance(delivered, Changes) else delivered)
            if isinstance(delivered, Changes):
                came |= self._expected.came(delivered)
                if len(came) >= _EDITS_AT_ONCE:
                    self._wake.set()  # the rest in the next turn: what is due is looked at meanwhile
                    break
        wanted = {change_id: job_id for change_id, (job_id, _) in self._unseen.items()} | came
        if wanted:
            found = self._post_edits(list(dict.fromkeys(wanted.values())))
            self._remember_unseen(wanted, found)
        self.reached_us = reached_us or None  # only now: what was delivered before it has been handed over
        self.requests.turn(self._ask)

    def _open_changes(self, after_id: int, most: int) -> list[OpenChange]:
        began_ns = self._clock.boot_ns()
        rows = self._ask("open_changes", {"after_id": after_id, "most": most})
        changes = [OpenChange(row["change_id"], row["job_id"], row["committed_us"]) for row in rows]
        self._looked_ns += self._clock.boot_ns() - began_ns
        return changes

    def _remember_unseen(self, wanted: dict[int, int], found: Collection[int]) -> None:
        """A change can arrive before its commit is visible; ask again for a moment, then leave it to the audit."""
        unseen = {}
        for change_id, job_id in wanted.items():
            tries = self._unseen.get(change_id, (job_id, 0))[1] + 1
            if change_id not in found and tries < _TRIES_FOR_A_ROW and not self._posted.has(job_id, change_id):
                unseen[change_id] = (job_id, tries)
        self._unseen = unseen

    def _audit(self) -> None:
        for _ in self._audit_steps(first=False):
            self._follow()
            self._extend_when_due()  # a million open edits take longer than the horizon reaches

    def _audit_steps(self, *, first: bool) -> Iterator[None]:
        """Look at open changes and plan what capture missed, some at a time; the first of a term plans every one."""
        at_once = _EDITS_BETWEEN_SLICES if first else _EDITS_AT_ONCE
        closed = self._posted.ids()
        now_us = self._database_clock.now_us()
        stale_us = int(self._settings.audit_stale_seconds * SECOND)
        after_id = self._looked_ns = 0
        while True:
            changes = self._open_changes(after_id, _OPEN_AT_ONCE)
            closed.difference_update(change.change_id for change in changes)
            due = self._posted.new(changes)
            if not first:
                lost = missed(due, self.reached_us)
                self._note_missed(len(lost))
                waiting = overdue(set(due).difference(lost), self._heard_us, now_us, stale_us)
                self._expected.expect(waiting)
                due = sorted(lost + waiting, key=lambda change: change.change_id)
            for chunk in _chunks(list(dict.fromkeys(change.job_id for change in due)), at_once):
                self._post_edits(chunk)
                yield
            if len(changes) < _OPEN_AT_ONCE:
                break
            after_id = changes[-1].change_id
            yield
        self._note_missed(self._expected.lost(self.reached_us))
        self._ask("forget_announcements", {})
        self.requests.audit(self._ask)
        self._posted.close(closed)  # what was handed over meanwhile is not among them: these rows were read before
        self._audited_ns = self._clock.boot_ns()
        if first:
            self._handing.put(Audited())

    def _note_missed(self, count: int) -> None:
        if count:
            self.capture_missed += count
            log.warning("Capture missed %d edits; they are planned from the table", count)

    # ---- reading and handing over ----------------------------------------------------------

    def _load_first_horizon(self) -> None:
        """Read what falls due out to the first horizon; what may stand in the tail last, when that is written."""
        began_ns, until_us = self._clock.boot_ns(), self._new_horizon_us()
        self._handing.put_and_wait(Horizon(until_us))
        self._slices.read(self._overdue_us, until_us)
        self._horizon_us = until_us
        if not self._handing.tail_is_written:
            self._handing.await_flushed()
        while self._overdue_us is not None:
            self._look_up()
        seconds = (self._clock.boot_ns() - began_ns) / 1e9
        log.info("What falls due within the horizon is loaded", extra={"action": "loaded", "seconds": seconds})
        while self._audited_ns is None:
            self._look_up()
            self._extend_when_due()
        self.loaded_through = True

    def _extend_horizon(self) -> None:
        """Read what falls due between the horizon and the new one."""
        until_us = self._new_horizon_us()
        self._handing.put_and_flush(Horizon(until_us))
        self._slices.read(self._horizon_us, until_us)
        self._horizon_us = until_us

    def _new_horizon_us(self) -> int:
        return self._database_clock.now_us() + int(self._settings.horizon_seconds * SECOND)

    def _has_to_look_up(self) -> bool:
        begins = self._audited_ns is None and self._handing.tail_is_written
        return begins or bool(self._unseen) or self._wake.is_set()

    def _look_up(self) -> None:
        """Between two slices: what came meanwhile, once in a term what is overdue, and some edits that were open.

        Nothing of it before the tail is written: what rows say until then may have been published.
        """
        self._wake.clear()
        if self._audited_ns is None:
            if not self._handing.tail_is_written:
                return
            if self._overdue_us is not None:
                until_us, self._overdue_us = self._overdue_us, None
                self._slices.read(None, until_us)  # looks up after its first slice
            else:
                next(self._first_audit, None)
        self._follow()

    def _post_edits(self, job_ids: Sequence[int]) -> set[int]:
        """Read the open changes of some jobs and hand them over; returns the ids of those found."""
        found: set[int] = set()
        for chunk in _chunks(job_ids, _EDITS_AT_ONCE):
            as_of, now_us = self._handing.flushed, self._database_clock.now_us()
            rows = self._ask("read_edits", {"job_ids": chunk})
            found.update(row["change_id"] for row in rows)
            edits = list(edits_of(rows, self._posted.by_job, now_us))
            self._posted.add(edits)
            for start in range(0, len(edits), MOST_EDITS):
                self._handing.await_room()
                self._handing.put(Edits(edits[start : start + MOST_EDITS], as_of))
        return found

    def _read_again(self, job_ids: list[int]) -> None:
        """Drop what is held of some jobs and take them in as their rows say now."""
        self._handing.put_and_flush(Forget(job_ids))
        self._posted.forget(job_ids)
        self._hand_over("read_jobs", job_ids=job_ids)
        self._post_edits(job_ids)

    def _plan_zones_anew(self) -> None:
        """Hand over what was planned with other time zone data and lies beyond the horizon; then note it as done."""
        (noted,) = self._ask("zone_data_planned", {})
        if noted["tzdata_planned"] == TZDATA_VERSION:
            return
        after_us, after_id, count = self._horizon_us, _LAST_ID, 0
        while rows := self._hand_over(
            "load_other_zone_data", after_us=after_us, after_id=after_id, most=PART, tzdata=TZDATA_VERSION
        ):
            after_us, after_id, count = rows[-1]["next_us"], rows[-1]["job_id"], count + len(rows)
            self._handing.await_room(0)
            self._follow()
        self._handing.await_room(0)
        self._handing.await_flushed()
        self._ask("note_zone_data_planned", {"tzdata": TZDATA_VERSION, "token": self._handing.token})
        log.info("Every plan stands on time zone data %s; %d were made anew", TZDATA_VERSION, count)

    def _hand_over(self, query: str, **parameters: Any) -> list[dict[str, Any]]:
        """Read jobs and hand over those that have a next time; returns all rows."""
        as_of, now_us = self._handing.flushed, self._database_clock.now_us()
        rows = self._ask(query, parameters)
        jobs = jobs_of((row for row in rows if row["next_us"] is not None), now_us)
        self._handing.put(Loaded(JobColumns.of(jobs), as_of))
        return rows

    def _ask(self, name: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        if self._stop.is_set():
            raise Stopping
        return self._ask_rows(name, parameters)


def _read_json(connection: psycopg.Connection[Any]) -> None:
    set_json_loads(orjson.loads, connection)


def _drain(source: queue.SimpleQueue[Any]) -> Iterator[Any]:
    while True:
        try:
            yield source.get_nowait()
        except queue.Empty:
            return


def _chunks(values: Sequence[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(values), size):
        yield list(values[start : start + size])
