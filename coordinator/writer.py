"""What the leader writes to Postgres, in the order in which it was published.

The dispatcher hands over and goes on; nothing waits for Postgres between due
and published. Each write is one autocommitted statement, checked against the
epoch. Rows that a write did not match mean one of two things:

    the row has the version we wanted to write   an earlier try had landed unseen
    anything else                                somebody else wrote: read it again

While Postgres is away the same write is tried again, and the rest queues up.
Consecutive advances are merged, as only a job's newest next time matters: a
Postgres that is too slow writes each job once a round, however often it has fired.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from coordinator.asking import Ask, Asking, Stopping
from coordinator.requests import Step, step_parameters
from cronstream.clock import Clock
from cronstream.fault_points import reach
from cronstream.records import Int64s
from cronstream.schedule import TZDATA_VERSION
from cronstream.settings import CoordinatorSettings

log = logging.getLogger(__name__)

NONE = -1
"""In a column of instants: there is none."""
MOST_ROWS = 10_000
"""Of a statement."""
MOST_MERGED = 1_000_000
"""Rows that are put together when much waits: a job's newest next time then stands for all before it."""


@dataclass(frozen=True, slots=True)
class TailRows:
    """What stood on the log when the term began and perhaps in no row: jobs move past their newest published time."""

    job_ids: Sequence[int]
    published_us: Sequence[int]
    offsets: Mapping[int, int] = field(default_factory=dict)
    """None: the first write after the edits that are open now are planned covers the tail with it."""

    def __len__(self) -> int:
        return len(self.job_ids)


@dataclass(frozen=True, slots=True)
class Advances:
    """Jobs that fired: from the version expected to the one written, with the next time."""

    job_id: Int64s
    expected: Int64s
    version: Int64s
    next_us: Int64s
    offsets: Mapping[int, int]
    """The next triggers offset of each partition that these were published to."""

    def __len__(self) -> int:
        return len(self.job_id)


class PlanRow(NamedTuple):
    """What an edit came to, as it is stored."""

    job_id: int
    expected: int
    version: int
    next_us: int | None
    revision: int
    anchor_us: int | None
    gone: bool
    change_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Plans:
    """Edits that were planned together, after what they settled was published."""

    rows: Sequence[PlanRow]
    offsets: Mapping[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Steps:
    """How far requests have been published."""

    steps: Sequence[Step]
    offsets: Mapping[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.steps)


Write = TailRows | Advances | Plans | Steps


class Fenced(Exception):
    """The epoch holds a newer token."""


class Writer:
    """Applies writes in order, on a connection and a thread of its own."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        token: int,
        clock: Clock,
        *,
        unmatched: Callable[[list[int]], None],
        stepped: Callable[[Sequence[Step]], None] = lambda steps: None,
        end_term: Callable[[str], None],
        ask: Ask | None = None,
    ) -> None:
        """Called from the writer's thread: ``unmatched(job_ids)`` of rows that were not as expected,
        ``stepped(steps)`` of requests when that is stored. ``ask`` answers the writer's statements, with rows
        as tuples; by default Postgres does.
        """
        self.token = token
        self._clock = clock
        self._unmatched = unmatched
        self._stepped = stepped
        self._end_term = end_term
        self._queue: deque[tuple[int, int, Write]] = deque()
        self._changed = threading.Condition()
        self._put = 0
        self._stopping = False
        self._asking = Asking(settings, "writer", stopping=lambda: self._stopping, pause=clock.sleep)
        self._ask = self._asking if ask is None else ask
        self.flushed = 0
        """The number of the newest write that is done, and with it of all before."""
        self.rows_written = 0
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def start(self) -> None:
        """Begin writing."""
        self._thread.start()

    def put(self, write: Write) -> int:
        """Queue a write; returns its number, to be compared with ``flushed``."""
        with self._changed:
            self._put += 1
            self._queue.append((self._put, self._clock.boot_ns(), write))
            self._changed.notify()
            return self._put

    def waiting_seconds(self) -> float:
        """The age of the oldest write that is not done."""
        with self._changed:
            return (self._clock.boot_ns() - self._queue[0][1]) / 1e9 if self._queue else 0.0

    @property
    def handed_over(self) -> int:
        """The number of the newest write that was put."""
        return self._put

    @property
    def waiting(self) -> int:
        """How many writes are not done."""
        return len(self._queue)

    def stop(self, *, drain_seconds: float) -> None:
        """Write what is queued within a deadline, then end the thread."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join(drain_seconds)
        with self._changed:
            if self._queue:
                log.warning("%d writes are left to the next leader, who reads them off the log", len(self._queue))
                self._queue.clear()
        self._asking.close()

    def _run(self) -> None:
        try:
            while self.write_next():
                pass
        except Fenced as error:
            self._end_term(str(error))
        except Stopping:
            pass
        except Exception:
            log.exception("A write to Postgres failed for good")
            self._end_term("a write to Postgres failed for good")

    def write_next(self) -> bool:
        """Wait for a write and do it, with those behind it that fit; False when it is time to stop.

        Raises Fenced, Stopping.
        """
        batch = self._next_batch()
        if not batch:
            return False
        self._write([write for _, _, write in batch])
        number = batch[-1][0]
        with self._changed:
            while self._queue and self._queue[0][0] <= number:
                self._queue.popleft()
            self.flushed = number
        return True

    def _next_batch(self) -> list[tuple[int, int, Write]]:
        """The head of the queue: consecutive writes of one kind. Empty when it is time to stop."""
        with self._changed:
            while not self._queue:
                if self._stopping:
                    return []
                self._changed.wait()
            batch: list[tuple[int, int, Write]] = []
            rows = 0
            kind = type(self._queue[0][2])
            most = MOST_MERGED if kind is Advances else MOST_ROWS
            planned: set[int] = set()
            for entry in self._queue:
                write = entry[2]
                if type(write) is not kind or (batch and rows + len(write) > most):
                    break
                if isinstance(write, Plans):
                    job_ids = {row.job_id for row in write.rows}
                    if planned & job_ids:  # one statement cannot write a row twice
                        break
                    planned |= job_ids
                batch.append(entry)
                rows += len(write)
            return batch

    def _write(self, writes: Sequence[Write]) -> None:
        """Writes of one kind."""
        if advances := [write for write in writes if isinstance(write, Advances)]:
            self._write_rows("advance", advance_statements(advances))
        elif plans := [write for write in writes if isinstance(write, Plans)]:
            self._write_rows("store_plans", plan_statements(plans))
        elif steps := [write for write in writes if isinstance(write, Steps)]:
            self._write_steps(steps)
        elif tail := [write for write in writes if isinstance(write, TailRows)]:
            self._write_tail(tail)

    def _write_rows(self, name: str, statements: Sequence[dict[str, Any]]) -> None:
        for rows in statements:
            reach("write.before")
            done = self._execute(name, rows)
            reach("write.done")
            self.rows_written += done
            if done < len(rows["job_ids"]):
                self._look_into(rows["job_ids"], rows["versions"])

    def _write_tail(self, writes: Sequence[TailRows]) -> None:
        """A row that has moved since says nothing: what counts is that none stays behind."""
        for write in writes:
            reach("write.before")
            rows = {"job_ids": write.job_ids, "published_us": write.published_us}
            self.rows_written += self._execute("apply_tail", rows)
            reach("write.done")

    def _write_steps(self, writes: Sequence[Steps]) -> None:
        steps = [step for write in writes for step in write.steps]
        reach("write.before")
        self.rows_written += self._execute(
            "store_steps", {**step_parameters(steps), **offset_parameters(merged_offsets(writes))}
        )
        reach("write.done")
        self._stepped(steps)

    def _execute(self, name: str, rows: dict[str, Any]) -> int:
        """Run one write until it is answered; returns how many rows it matched. Raises Fenced."""
        fenced, done = self._ask(name, {"token": self.token, "tzdata": TZDATA_VERSION, **rows})[0]
        if not fenced:
            raise Fenced("Postgres holds a newer fencing token")
        return int(done)

    def _look_into(self, job_ids: list[int], versions: list[int]) -> None:
        """Rows that were not matched: those at the version we meant are done, others are read again."""
        found = dict(self._ask("read_versions", {"job_ids": job_ids}))
        wanted = dict(zip(job_ids, versions, strict=True))
        strange = [job_id for job_id, version in wanted.items() if found.get(job_id) != version]
        if strange:
            log.info("%d rows were not as expected and are read again", len(strange))
            self._unmatched(strange)


def advance_statements(writes: Sequence[Advances]) -> list[dict[str, Any]]:
    """Consecutive advances, merged, as the parameters of one or more ``advance``."""
    merged = merge(writes)
    return _noting([advance_parameters(merged, part) for part in _parts(len(merged))], merged.offsets)


def plan_statements(writes: Sequence[Plans]) -> list[dict[str, Any]]:
    """Plans, ordered by job, as the parameters of one or more ``store_plans``; no job comes twice."""
    rows = sorted((row for write in writes for row in write.rows), key=lambda row: row.job_id)
    return _noting([plan_parameters(rows[part]) for part in _parts(len(rows))], merged_offsets(writes))


def _noting(statements: list[dict[str, Any]], offsets: Mapping[int, int]) -> list[dict[str, Any]]:
    """The last of several statements notes the offsets of all: only then is everything before them written."""
    last = len(statements) - 1
    return [{**rows, **offset_parameters(offsets if number == last else {})} for number, rows in enumerate(statements)]


def merge(writes: Sequence[Advances]) -> Advances:
    """Consecutive advances as one: a job keeps the first expected version and the last of the rest."""
    if len(writes) == 1:
        return writes[0]
    job_id = np.concatenate([write.job_id for write in writes])
    newest_first = job_id[::-1]
    ids, first = np.unique(job_id, return_index=True)
    _, last = np.unique(newest_first, return_index=True)
    last = len(job_id) - 1 - last
    return Advances(
        ids,
        np.concatenate([write.expected for write in writes])[first],
        np.concatenate([write.version for write in writes])[last],
        np.concatenate([write.next_us for write in writes])[last],
        merged_offsets(writes),
    )


def _parts(rows: int) -> list[slice]:
    """Of at most MOST_ROWS."""
    return [slice(start, start + MOST_ROWS) for start in range(0, rows, MOST_ROWS)]


def advance_parameters(advances: Advances, part: slice) -> dict[str, Any]:
    """Some rows as the parameters of ``advance``."""
    return {
        "job_ids": advances.job_id[part].tolist(),
        "expected": advances.expected[part].tolist(),
        "versions": advances.version[part].tolist(),
        "next_us": advances.next_us[part].tolist(),
    }


def plan_parameters(rows: Sequence[PlanRow]) -> dict[str, Any]:
    """Rows as the parameters of ``store_plans``; no job comes twice."""
    return {
        "job_ids": [row.job_id for row in rows],
        "expected": [row.expected for row in rows],
        "versions": [row.version for row in rows],
        "next_us": [NONE if row.next_us is None else row.next_us for row in rows],
        "revisions": [row.revision for row in rows],
        "anchors_us": [NONE if row.anchor_us is None else row.anchor_us for row in rows],
        "gone": [row.gone for row in rows],
        "change_ids": [change_id for row in rows for change_id in row.change_ids],
    }


def merged_offsets(writes: Iterable[Write]) -> dict[int, int]:
    """The offsets that consecutive writes cover together."""
    offsets: dict[int, int] = {}
    for write in writes:
        offsets.update(write.offsets)
    return offsets


def offset_parameters(offsets: Mapping[int, int]) -> dict[str, Any]:
    """Triggers offsets as two columns."""
    return {"partitions": list(offsets), "offsets": list(offsets.values())}
