"""One partition's records, one at a time, in order.

    agents ──put──► queue ──► decide ──► [ changelogs ┐
                                           outputs    ┘ all acknowledged ] ──► local tables ──► done = offset + 1

A partition's records may come from more than one topic (admission's do); each topic's come in their order.
``done`` is what may be committed of each: it never passes a record whose effects are not
acknowledged. A crash between any two effects leaves the record uncommitted; it
comes again, and its decision is the same one (admission finds its row,
settlement its offset).

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
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from aiokafka.errors import MessageSizeTooLargeError

from cronstream import dead_letters, fault_points
from cronstream.clock import Clock
from cronstream.dead_letters import Record
from cronstream.topics import Topics
from streams.stages import Effects, Send, Stage, set_aside

log = logging.getLogger(__name__)

WAITING = 16
"""Records that a lane holds beside the one under way."""
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
    """A stage's table, and that of waiting runs if it has one: what ``rows`` speak of is written before them."""

    own: Table
    waiting: Table | None = None

    async def log(self, effects: Effects) -> Logged:
        """Write to the changelogs; their last offsets once all is acknowledged."""
        waiting = await self.waiting.log(effects.waiting) if self.waiting and effects.waiting else None
        return waiting, await self.own.log(effects.rows)

    def store(self, effects: Effects, logged: Logged) -> None:
        """Write to the local stores."""
        if self.waiting and effects.waiting:
            self.waiting.store(effects.waiting, logged[0])
        self.own.store(effects.rows, logged[1])


Sender = Callable[[Send, int], Awaitable[object]]
"""Produces to a partition; returns once the broker has acknowledged."""


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
        self._queue: asyncio.Queue[Record] = asyncio.Queue(WAITING)
        self._closed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._under_way = False

    def open(self) -> None:
        """Start taking records."""
        self._task = asyncio.create_task(self._run(), name=f"lane {self._stage.name}[{self.partition}]")

    async def close(self) -> None:
        """Drop what waits, cancel what is under way."""
        self._closed.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def finish(self, seconds: float) -> None:
        """Let the record that is under way end, drop what waits, then close."""
        self._closed.set()
        if self._under_way and self._task is not None:
            await asyncio.wait({self._task}, timeout=seconds)
        await self.close()

    @property
    def is_open(self) -> bool:
        """True while records are taken and the table may be read."""
        return self._task is not None and not self._closed.is_set()

    @property
    def failure(self) -> BaseException | None:
        """What ended it though nobody closed it, such as a store without room: nothing of its partition goes on."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            return None
        return self._task.exception()

    @property
    def busy(self) -> bool:
        """True while records wait or one is under way."""
        return self.taken > self.ended

    async def put(self, record: Record) -> None:
        """Queue the next record; waits for room. A closed lane drops it."""
        if self._closed.is_set():
            return
        if self._queue.full():
            room = asyncio.create_task(self._queue.put(record))
            closed = asyncio.create_task(self._closed.wait())
            await asyncio.wait((room, closed), return_when=asyncio.FIRST_COMPLETED)
            room.cancel()
            closed.cancel()
        else:
            self._queue.put_nowait(record)
        self.taken += 1

    async def _run(self) -> None:
        while not self._closed.is_set():
            record = await self._queue.get()
            self._under_way = True
            await self._carry_out(record, self._decide(record))
            self._under_way = False
            self.done[record.topic] = record.offset + 1
            self.ended += 1

    def _decide(self, record: Record) -> Effects:
        try:
            return self._stage.decide(record)
        except Exception as error:
            log.exception(
                "A record broke its stage and is set aside", extra={"action": "set_aside", "record": record.place}
            )
            return set_aside(self._topics, record, dead_letters.POISON_RECORD, repr(error))

    async def _carry_out(self, record: Record, effects: Effects) -> None:
        given_up = False
        while True:
            while not self._trusted():
                await self._clock.asleep(0.05)
            try:
                logged = await self._emit(effects)
            except NEVER_TAKEN as error:
                log.exception("Effects are never taken", extra={"action": "set_aside", "record": record.place})
                if given_up:
                    raise
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
            await asyncio.gather(*(self._send(send, self.partition) for send in effects.sends))
            self._reach("sent")

    def _reach(self, point: str) -> None:
        fault_points.reach(f"{self._stage.name}.{point}")
