"""A leader of real parts over tables and a log in memory, one thread, a clock that is told.

Dispatcher, Reader, Writer, planning and wheel are the real ones. What happens in other
threads meanwhile happens here at every point where the reader asks or waits: the
dispatcher turns, a write is done, a user edits, time passes, the leader dies.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from coordinator.arrivals import Mailbox
from coordinator.dispatcher import Dispatcher
from coordinator.reader import Reader
from coordinator.tail import Tail
from coordinator.trust import Term, TermOver, TrustWindow
from coordinator.writer import Writer
from cronstream.bodies import Skip, skip_of
from cronstream.changes import Changes
from cronstream.clock import FakeClock
from cronstream.records import Batch, Item, Kind
from cronstream.settings import CoordinatorSettings
from tests.properties.term.oracle import History, allowed, due_times, next_time, stretches
from tests.properties.term.tables import DEFAULTS, WORK, RequestRow, Tables

START_US = 1_800_000_000_000_000
SETTINGS = CoordinatorSettings(
    postgres="", kafka="k:1", etcd="e:1", partitions=2, horizon_seconds=10, transaction_items=3, audit_seconds=1.0,
    audit_stale_seconds=3.0, deletions_per_second=1,
)  # fmt: skip


class Log:
    """The triggers topic, and the publisher of whoever leads."""

    def __init__(self, world: World) -> None:
        self.records: dict[int, list[Batch]] = {partition: [] for partition in range(SETTINGS.partitions)}
        self.faults = True
        self._world = world

    def publish(self, batches: Iterable[tuple[int, Batch]]) -> dict[int, int]:
        world, now_us = self._world, self._world.now_us()
        fault = world.random.random() if self.faults else 1.0
        if fault < 0.02:
            raise TermOver("before the commit")
        if fault < 0.1:
            world.clock.advance(0.05)  # aborted, and published again
        offsets = {}
        for partition, batch in batches:
            again = Batch.decode(batch.encode())
            runs = again.scheduled[again.kind == Kind.RUN]
            assert not runs.size or int(runs.max()) <= min(now_us, again.published_at), "NeverEarly"
            self.records[partition].append(again)
            offsets[partition] = len(self.records[partition])
        if fault > 0.98 and self.faults:
            raise TermOver("the answer to the commit was lost")
        return offsets

    def items(self, job_id: int) -> list[tuple[int, Item]]:
        """A job's items in order, each with when it was published."""
        batches = (batch for records in self.records.values() for batch in records)
        return [(batch.published_at, item) for batch in batches for item in batch.items() if item.job_id == job_id]


class Stop:
    """The reader's stop event: while it waits, the others go on."""

    def __init__(self, world: World) -> None:
        self._world = world

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        self._world.clock.advance(seconds)
        self._world.dispatch()
        if self._world.random.random() < 0.5:
            self._world.write()
        return False


class World:
    def __init__(self, seed: int, *, small: bool = False) -> None:
        """``small``: what is read at once is cut up, however few jobs there are."""
        self.random = random.Random(seed)
        self._reader_limits = {"largest_slice": 2} if small else {}
        self.clock = FakeClock(START_US)
        self.tables = Tables(self.now_us)
        self.log = Log(self)
        self.histories: dict[int, History] = {}
        self.ended_by: dict[int, list[int]] = {}
        """By job: the change that brought each entry of its history."""
        self.feed: list[Changes] = []
        self.together = small
        """Edits of one instant are one statement's."""
        self.terms = 0
        self.meanwhile = True
        self.take_office()

    def now_us(self) -> int:
        return self.clock.wall_us()

    def boot_ns(self) -> int:
        return self.clock.boot_ns()

    # ---- the leader --------------------------------------------------------------------------

    def take_office(self) -> None:
        """A new leader: fences, applies the tail, starts anew."""
        self.terms += 1
        token = self.tables.token = self.terms
        tail = Tail()
        for partition, records in self.log.records.items():
            for batch in records[self.tables.offsets.get(partition, 0) :]:
                tail.add(batch)
        window = TrustWindow(1)
        window.renewed(0, 10**9)
        mailbox = self.mailbox = Mailbox()
        self.reader = Reader(
            SETTINGS,
            self.clock,
            self,
            mailbox,
            Stop(self),
            self._end_term,
            tail,
            ask=self._ask,
            **self._reader_limits,
        )
        self.writer = Writer(
            SETTINGS,
            token,
            self.clock,
            unmatched=self.reader.unmatched,
            stepped=self.reader.requests.stepped,
            end_term=self._end_term,
            ask=self._answer,
        )
        for rows in tail.rows():
            self.writer.put(rows)
        self.reader.follow_writer(self.writer)
        term = Term(token, window, self.clock)
        self.dispatcher = Dispatcher(SETTINGS, term, token, self, self.log, self.writer, mailbox, tail)

    def _end_term(self, reason: str) -> None:
        raise TermOver(reason)

    def act(self, *parts: Any) -> None:
        """Let parts of the leader act; one that ends the term is followed at once."""
        try:
            for part in parts:
                part()
        except TermOver:
            self.take_office()

    def dispatch(self) -> None:
        for _ in range(500):
            if not self.dispatcher.turn():
                return

    def write(self) -> None:
        if self.writer.waiting:
            self.writer.write_next()

    def write_all(self) -> None:
        while self.writer.waiting:
            self.writer.write_next()

    def read(self) -> None:
        self.reader.turn()

    def _ask(self, name: str, given: dict[str, Any]) -> list[Any]:
        rows = self.tables.read(name, given)
        if self.meanwhile:
            self._others()
        return rows

    def _answer(self, name: str, given: dict[str, Any]) -> list[tuple[int, int]]:
        if self.meanwhile and self.random.random() < 0.1:
            self.tables.write(name, given, self.now_us())  # done, and the answer was lost
        return self.tables.write(name, given, self.now_us())

    def _others(self) -> None:
        for _ in range(self.random.randrange(4)):
            what = self.random.random()
            if what < 0.4:
                self.dispatcher.turn()
            elif what < 0.7:
                self.write()
            elif what < 0.9:
                self.clock.advance(self.random.choice([0.001, 0.1, 1.0]))
            elif what < 0.98:
                self._edit_somehow()
            else:
                raise TermOver("died")

    # ---- users and capture -------------------------------------------------------------------

    def _edit_somehow(self) -> None:
        living = [job_id for job_id in self.histories if self.histories[job_id][-1][1] is not None]
        if living:
            self.edit(self.random.choice(living), **self.random.choice(EDITS))

    def insert(self, **columns: Any) -> int:
        job_id = len(self.histories) + 1
        self._commit(job_id, {**DEFAULTS, **WORK, "name": f"job-{job_id}", **self._absolute(columns)})
        return job_id

    def edit(self, job_id: int, **columns: Any) -> None:
        old = self.histories[job_id][-1][1]
        if old is not None:
            self._commit(job_id, {**old, **self._absolute(columns)})

    def delete(self, job_id: int) -> None:
        if self.histories[job_id][-1][1] is not None:
            self._commit(job_id, None)

    def run_now(self, job_id: int, *, captured: bool = True) -> RequestRow:
        return self._request(captured, "run-now", job_id, scheduled_us=self.now_us())

    def backfill(self, job_id: int, seconds: float, *, captured: bool = True, most_runs: int = 100) -> RequestRow:
        """The last so many seconds."""
        begins_us, ends_us = self.now_us() - round(seconds * SECOND), self.now_us()
        return self._request(captured, "backfill", job_id, begins_us - 1, ends_us=ends_us, most_runs=most_runs)

    def redrive(self, job_id: int, scheduled_us: int, request_id: int, attempt: int) -> RequestRow:
        run = {"scheduled_us": scheduled_us, "run_request_id": request_id, "attempt": attempt}
        return self._request(True, "redrive", job_id, **run)

    def _request(self, captured: bool, kind: str, job_id: int, *given: int, **parameters: int) -> RequestRow:
        row = self.tables.request(kind, job_id, *given, **parameters)
        if captured:
            self.reader.requests.requested(row.number, row.kind)
        return row

    def _absolute(self, columns: dict[str, Any]) -> dict[str, Any]:
        """``run_in`` and ``ends_in`` seconds become instants; one kind of schedule replaces the others."""
        columns = dict(columns)
        for given, column in (("run_in", "run_at_us"), ("ends_in", "ends_at_us")):
            if given in columns:
                columns[column] = self.now_us() + round(columns.pop(given) * 1e6)
        if columns.keys() & {"cron", "every_us", "run_at_us"}:
            columns = {"cron": None, "every_us": None, "run_at_us": None, **columns}
        return columns

    def _commit(self, job_id: int, definition: dict[str, Any] | None) -> None:
        change = self.tables.edit(job_id, definition, self.now_us())
        self.histories.setdefault(job_id, []).append((change.committed_us, definition))
        self.ended_by.setdefault(job_id, []).append(change.change_id)
        self._announce({change.change_id: job_id}, change.committed_us)

    def _announce(self, job_of: dict[int, int], committed_us: int) -> None:
        """A message of its own, or one with what the same statement told before: ``together``."""
        if self.together and self.feed and self.feed[-1].committed_us == committed_us:
            job_of = {**self.feed.pop().job_of, **job_of}
        self.feed.append(Changes(job_of, committed_us))

    def capture(self, count: int, *, lose: bool = False) -> None:
        for _ in range(min(count, len(self.feed))):
            event = self.feed.pop(0)
            if not lose:
                self.reader.changed(event)
        if not self.feed:
            self.reader.beat(self.now_us())

    # ---- the end -----------------------------------------------------------------------------

    def settle(self) -> None:
        """No more faults; until nothing is left to do."""
        self.meanwhile = self.log.faults = False
        self.reader._looked_ns = 0  # seconds may have passed in one look here: ten times as long is not waited for
        self.capture(len(self.feed))
        for _ in range(12):
            self.clock.advance(0.6)
            self.act(self.read, self.dispatch, self.write_all)
        # A job that is behind and in its grace goes on by one time a transaction; those begin some milliseconds apart.
        for _ in range(80):
            self.clock.advance(0.01)
            self.act(self.read, self.dispatch, self.write_all)
        assert not self.tables.changes, "an edit is left open"
        assert all(row.state != "open" for row in self.tables.requests.values()), "a request is left open"

    def check(self) -> None:
        for job_id in self.histories:
            self.check_job(job_id)
        for row in self.tables.requests.values():
            self.check_request(row)

    def check_job(self, job_id: int) -> None:
        history, now_us = self.histories[job_id], self.now_us()
        items = [(at_us, item) for at_us, item in self.log.items(job_id) if (item.request_id, item.attempt) == (0, 1)]
        runs = [item.scheduled_us for _, item in items if item.kind == Kind.RUN]
        assert runs == sorted(set(runs)), f"InOrder, OneRunPerScheduledTime: {_seconds(runs)}"
        assert all(item.body for _, item in items if item.kind == Kind.RUN)
        # A skip may be said again by the next leader, in the same words.
        skips = {skip_of(item.body) for _, item in items if item.kind == Kind.SKIP}
        recorded = set(skips)
        skips = {skip for skip in skips if not self._is_notice(history, skip)}
        assert not {skip.last for skip in skips} & set(runs), "a time ran and was recorded as skipped"
        due = due_times(history, now_us)
        known = set(runs)
        for time_us in due:
            assert time_us in known or any(skip.first <= time_us <= skip.last for skip in recorded), (
                f"NoRunLost: job {job_id}, {_seconds([time_us])}"
            )
        counted = sum(skip.count for skip in skips) + len(known & set(due))
        late_edit = any(
            item.kind == Kind.SKIP
            and commit_us < item.scheduled_us
            and published_us <= self.tables.closed_us[change_id]
            for published_us, item in items
            for (commit_us, _), change_id in zip(history, self.ended_by[job_id], strict=True)
        )
        # The old schedule's misfires count as well while an edit is on its way.
        at_a_commit = set(due) & {commit_us for commit_us, _ in history}  # looks like a notice
        assert at_a_commit or counted == len(due) or (late_edit and counted > len(due)), "counts add up"
        for published_us, item in items:
            if item.kind == Kind.RUN:
                self._check_allowed(job_id, item.scheduled_us, published_us)
        row = self.tables.schedules.get(job_id)
        if history[-1][1] is None:
            assert row is None
            _, last = self.log.items(job_id)[-1]
            assert last.kind == Kind.CANCEL, "a deletion is told, and is the last of its job"
        else:
            assert row is not None
            # A job in the wheel may have a lower bound in its row, after a takeover.
            expected = next_time(history, now_us)
            found = row.next_us and stretches(history)[-1][0].next_after(row.next_us - 1)
            assert row.next_us == expected or found == expected

    def runs_of(self, row: RequestRow) -> list[int]:
        """The scheduled times of a request's runs as admission lets them pass: each once, as first published."""
        run = row.parameters.get("run_request_id", row.number), row.parameters.get("attempt", 1)
        items = [item for _, item in self.log.items(row.job_id) if (item.request_id, item.attempt) == run]
        return list(dict.fromkeys(item.scheduled_us for item in items))

    def check_request(self, row: RequestRow) -> None:
        """All of its runs, each once, in order, whatever became of leaders; a deleted job's may have ended early."""
        runs = self.runs_of(row)
        assert runs == sorted(runs)
        assert row.published in ((len(runs),) if row.state == "done" else range(len(runs) + 1))
        history = self.histories[row.job_id]
        if row.kind == "run-now":
            assert runs == [row.parameters["scheduled_us"]] or (row.state == "cancelled" and not runs)
        if row.state == "cancelled":
            assert history[-1][1] is None or row.reason is not None

    @staticmethod
    def _is_notice(history: History, skip: Skip) -> bool:
        """Said of a definition as such, not of a time that was due."""
        said_at_commit = skip.first == skip.last and skip.last in {commit_us for commit_us, _ in history}
        return skip.reason.startswith("already past") or (skip.reason.startswith("invalid: ") and said_at_commit)

    def _check_allowed(self, job_id: int, scheduled_us: int, published_us: int) -> None:
        """By a schedule in force then, or by one whose end the leader had not planned yet."""
        history, changes = self.histories[job_id], self.ended_by[job_id]
        for index in allowed(history, scheduled_us):
            if index + 1 == len(history) or scheduled_us <= history[index + 1][0]:
                return
            if published_us <= self.tables.closed_us[changes[index + 1]]:
                return
        raise AssertionError(f"EditsTakeEffect: job {job_id}, {_seconds([scheduled_us])}")


def _seconds(times_us: Iterable[int]) -> list[float]:
    return [(time_us - START_US) / 1e6 for time_us in times_us]


SECOND = 1_000_000
SCHEDULES: list[dict[str, Any]] = [
    {"every_us": SECOND},
    {"every_us": 3 * SECOND},
    {"every_us": 3 * SECOND, "anchor_us": START_US},
    {"every_us": 61 * SECOND},
    {"cron": "*/2 * * * * *"},
    {"cron": "*/10 * * * * *"},
    {"cron": "0 * * * *"},
    {"cron": "* * * * * *", "ends_in": 20},
    {"cron": "no such thing"},
    {"run_in": 1.5},
    {"run_in": 30},
    {"run_in": -5},
]
POLICIES: list[dict[str, Any]] = [
    {"misfire_policy": policy, "misfire_grace_us": grace} for policy in ("FIRE_NOW", "SKIP", "CATCH_UP")
    for grace in (0, 2 * SECOND, 60 * SECOND)
]  # fmt: skip
EDITS: list[dict[str, Any]] = [
    *SCHEDULES, *POLICIES, {"enabled": False}, {"enabled": True}, {"handler": "http"}, {"ends_at_us": None},
    {"ends_in": 8}, {"spread_seconds": 4},
]  # fmt: skip
for _schedule in SCHEDULES:
    if "every_us" not in _schedule or "anchor_us" not in _schedule:
        _schedule["anchor_us"] = None
