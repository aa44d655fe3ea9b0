"""One partition's records, a step at a time, in order.

    agents ──put──► what waits ──► decide ──► [ changelogs ┐
                                                outputs    ┘ all acknowledged ] ──► local tables ──► done = offset + 1

A step is what waits when the one before has ended: one record while all is quiet, many under load, as an
acknowledgement takes as long for many as for one. What goes to one partition lands in its order, so that of a
step that was cut short each partition has a beginning.

A partition's records may come from more than one topic (admission's do); each topic's come in their order.
``done`` is what may be committed of each: it never passes a record whose effects are not
acknowledged. A crash between any two effects leaves the step uncommitted; its records
come again, in other steps perhaps, and each decision is the same one (admission finds its row,
settlement its offset). So a step that cannot be carried out as a whole is decided again record by record,
and only the record that is in the way is set aside.

The places between two effects are fault points: ``admit.decided``, ``.sent``, ``.logged``, ``.acknowledged``
(sent and logged), ``.stored``; and the same of ``settle``.

A lane belongs to one generation of the consumer group. When its partition is
revoked it is closed: what waits is dropped, what is under way is cancelled like
in a crash. It acts only while the group still trusts this process (``trusted``):
a process that was stopped for longer than its session does nothing when it wakes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from aiokafka.errors import MessageSizeTooLargeError

from cronstream import dead_letters, fault_points
from cronstream.clock import Clock
from cronstream.dead_letters import Record
from cronstream.topics import Topics
from streams.index import JobIndex, entry_of
from streams.stages import Effects, Send, Stage, set_aside

log = logging.getLogger(__name__)

WAITING = 64
"""Records that a lane holds, those under way among them."""
STEP_BYTES = 256 * 1024
"""A step ends with the record that makes it larger: the most that a large record waits for others."""
AGAIN_SECONDS = 0.25
NEVER_TAKEN = (AssertionError, TypeError, ValueError, MessageSizeTooLargeError)
"""What a producer answers to records that it will not take however often it is asked."""


class Table(Protocol):
    """A partition of a changelogged table."""

    async def log(self, rows: Mapping[bytes, bytes | None]) -> int | None:
        """Write rows to the changelog; the last one's offset once all are acknowledged."""

    def store(self, rows: Mapping[bytes, bytes | None], logged: int | None) -> None:
        """Write them to the local store, with the changelog offset that it now includes."""


Logged = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Tables:
    """A stage's table, and what goes with it.

    Waiting runs have a table of their own: what ``rows`` speak of is written before them. The index
    follows what is stored.
    """

    own: Table
    waiting: Table | None = None
    index: JobIndex | None = None

    async def log(self, effects: Effects) -> Logged:
        """Write to the changelogs; their last offsets once all is acknowledged."""
        waiting = await self.waiting.log(effects.waiting) if self.waiting and effects.waiting else None
        return waiting, await self.own.log(effects.rows)

    def store(self, effects: Effects, logged: Logged) -> None:
        """Write to the local stores."""
        if self.waiting and effects.waiting:
            self.waiting.store(effects.waiting, logged[0])
        self.own.store(effects.rows, logged[1])
        if self.index is not None and effects.jobs:
            self.index.put(entry_of(job_id, known) for job_id, known in effects.jobs.items())


Sender = Callable[[str, int, Sequence[Send]], Awaitable[object]]
"""Produces to a topic's partition, in order; returns once the broker has acknowledged all."""


class Lane:
    """Carries a stage's decisions out. Open until ``close``."""

    def __init__(
        self,
        partition: int,
        stage: Stage,
        tables: Tables,
        send: Sender,
        topics: Topics,
        trusted: Callable[[], bool],
        clock: Clock,
        counts: Counter[str],
    ) -> None:
        self.partition = partition
        self.done: dict[str, int] = {}
        """By topic, the next offset to take after a restart; none before its first record is through."""
        self.taken = 0
        """How many records came in."""
        self.ended = 0
        """How many of them are through."""
        self.running = 0
        """By how many the runs under way became more since it was opened."""
        self._stage = stage
        self._tables = tables
        self._send = send
        self._topics = topics
        self._trusted = trusted
        self._clock = clock
        self._counts = counts
        self._waiting: deque[Record] = deque()
        """Those under way first."""
        self._one_by_one = 0
        """So many of them are decided alone: they could not be carried out together."""
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = False
        self._task: asyncio.Task[None] | None = None
        self._under_way = False

    def open(self) -> None:
        """Start taking records."""
        self._task = asyncio.create_task(self._run(), name=f"lane {self._stage.name}[{self.partition}]")

    async def close(self) -> None:
        """Drop what waits, cancel what is under way."""
        self._stop_taking()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def finish(self, seconds: float) -> None:
        """Let the step that is under way end, drop what waits, then close."""
        self._stop_taking()
        if self._under_way and self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)
        await self.close()

    def _stop_taking(self) -> None:
        self._closed = True
        self._room.set()

    @property
    def is_open(self) -> bool:
        """True while records are taken and the table may be read."""
        return self._task is not None and not self._closed

    @property
    def failure(self) -> BaseException | None:
        """What ended it though nobody closed it, such as a store without room: nothing of its partition goes on."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()

    @property
    def busy(self) -> bool:
        """True while records wait or are under way."""
        return self.taken > self.ended

    async def put(self, record: Record) -> None:
        """Queue the next record; waits for room. A closed lane drops it."""
        while len(self._waiting) >= WAITING and not self._closed:
            self._room.clear()
            await self._room.wait()
        if not self._closed:
            self._waiting.append(record)
            self.taken += 1
            self._arrived.set()

    async def _run(self) -> None:
        while not self._closed:
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            self._under_way = True
            records = self._next()
            taken = await self._take(records)
            for record in records[:taken]:
                self._waiting.popleft()
                self.done[record.topic] = record.offset + 1
            self.ended += taken
            self._one_by_one = max(0, self._one_by_one - taken)
            self._under_way = False
            self._room.set()

    def _next(self) -> list[Record]:
        """The records of the next step, as far as the stage takes them together."""
        records: list[Record] = []
        size = 0
        for record in self._waiting:
            records.append(record)
            size += len(record.value or b"")
            if size >= STEP_BYTES or self._one_by_one:
                break
        return records

    async def _take(self, records: Sequence[Record]) -> int:
        """Take a step; how many of the records are through, none if they are to be taken one by one."""
        try:
            effects = self._decide(records)
            await self._carry_out(records[0], effects)
        except Exception as error:
            if len(records) == 1:
                raise
            log.warning(
                "A step cannot be carried out, its records are taken one by one: %r",
                error,
                extra={"action": "one_by_one", "record": records[0].place},
            )
            self._one_by_one = len(records)
            return 0
        return effects.taken

    def _decide(self, records: Sequence[Record]) -> Effects:
        try:
            return self._stage.decide(records)
        except Exception as error:
            if len(records) > 1:
                raise
            log.exception(
                "A record broke its stage and is set aside", extra={"action": "set_aside", "record": records[0].place}
            )
            return set_aside(self._topics, records[0], dead_letters.POISON_RECORD, repr(error))

    async def _carry_out(self, record: Record, effects: Effects) -> None:
        """Everything acknowledged, then stored. Raises what a producer never takes of several records' effects."""
        given_up = False
        while True:
            while not self._trusted():
                await self._clock.asleep(0.05)
            try:
                logged = await self._emit(effects)
            except NEVER_TAKEN as error:
                if effects.taken > 1 or given_up:
                    raise
                log.exception("Effects are never taken", extra={"action": "set_aside", "record": record.place})
                effects, given_up = set_aside(self._topics, record, dead_letters.UNSENDABLE, repr(error)), True
            except Exception as error:
                log.warning(
                    "Effects not acknowledged, trying again: %r",
                    error,
                    extra={"action": "again", "record": record.place},
                )
                await self._clock.asleep(AGAIN_SECONDS)
            else:
                self._reach("acknowledged")
                self._tables.store(effects, logged)
                self._reach("stored")
                self._counts.update(effects.counts)
                if refused := effects.counts["refused_old_leader"]:
                    log.warning(
                        "%d items of a leader that was followed by another are set aside",
                        refused,
                        extra={"action": "refused", "record": record.place},
                    )
                self.running += effects.running
                return

    async def _emit(self, effects: Effects) -> Logged:
        """Everything acknowledged by the broker."""
        self._reach("decided")
        if effects.rows_first:
            logged = await self._log(effects)
            await self._send_all(effects)
        else:
            logged, _ = await asyncio.gather(self._log(effects), self._send_all(effects))
        return logged

    async def _log(self, effects: Effects) -> Logged:
        logged = await self._tables.log(effects)
        self._reach("logged")
        return logged

    async def _send_all(self, effects: Effects) -> None:
        if effects.sends:
            by_topic: dict[str, list[Send]] = {}
            for send in effects.sends:
                by_topic.setdefault(send.topic, []).append(send)
            await asyncio.gather(*(self._send(topic, self.partition, sends) for topic, sends in by_topic.items()))
            self._reach("sent")

    def _reach(self, point: str) -> None:
        fault_points.reach(f"{self._stage.name}.{point}")
