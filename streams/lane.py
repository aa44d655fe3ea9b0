"""One partition's records, one at a time, in order.

    agent ──put──► queue ──► decide ──► [ table's changelog ┐
                                          outputs           ┘ all acknowledged ] ──► local table ──► done = offset + 1

``done`` is what may be committed: it never passes a record whose effects are not
acknowledged. A crash between any two effects leaves the record uncommitted; it
comes again, and its decision is the same one (admission finds its row,
settlement its offset).

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
from typing import Protocol

from aiokafka.errors import MessageSizeTooLargeError

from cronstream import dead_letters
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


Sender = Callable[[Send, int], Awaitable[object]]
"""Produces to a partition; returns once the broker has acknowledged."""


class Lane:
    """Carries a stage's decisions out. Open until ``close``."""

    def __init__(
        self,
        tp: tuple[str, int],
        stage: Stage,
        table: Table,
        send: Sender,
        topics: Topics,
        trusted: Callable[[], bool],
        clock: Clock,
        counts: Counter[str],
    ) -> None:
        self.topic, self.partition = tp
        self.done: int | None = None
        """The next offset to take after a restart; None before the first record is through."""
        self.taken = 0
        """How many records came in."""
        self.ended = 0
        """How many of them are through."""
        self.running = 0
        """By how many the runs under way became more since it was opened."""
        self._stage = stage
        self._table = table
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
        self._task = asyncio.create_task(self._run(), name=f"lane {self.topic}[{self.partition}]")

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
            self.done = record.offset + 1
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
                outputs = asyncio.gather(*(self._send(send, self.partition) for send in effects.sends))
                logged, _ = await asyncio.gather(self._table.log(effects.rows), outputs)
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
                self._table.store(effects.rows, logged)
                self._counts.update(effects.counts)
                if refused := effects.counts["refused_old_leader"]:
                    log.warning(
                        "%d items of a leader that was followed by another are set aside",
                        refused,
                        extra={"action": "refused", "record": record.place},
                    )
                self.running += effects.running
                return
