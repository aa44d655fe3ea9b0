"""Faust's Kafka consumer and producer, made to keep their word (faust-streaming 0.15.3, aiokafka 0.14).

What is changed, and why:

- Only committed transactions are read; Faust does so for exactly-once alone.
- What is committed is what the lanes say is done. Faust's own reckoning from
  acknowledged events commits past an event that is still under way.
- Source partitions are resumed only with the flow, after recovery and after the
  seek to the committed offsets. Faust resumes them before the seek, so that
  what was fetched in between mixes with what is fetched after it.
- A fetch gets a copy of the set of partitions to fetch from. Faust hands over the set that
  it goes on changing, and an empty set means *all* partitions to aiokafka: what such a fetch
  brings has moved the position and is then dropped, so it is never seen again.
- For the same reason the seek waits until no fetch from source partitions is under way, and
  partitions without a committed offset are sought too, to their beginning.
- A fetch waits 20 ms at the broker, not 1.5 s, at most 0.2 s in all, not 1 s, and the pause
  while every buffer is full is 20 ms, not 1 s. What arrives is answered at once; the wait is
  what a partition loses that was being worked on when the fetch of the others was sent. So
  when nothing came for a second, and every partition is in the fetch, it waits 0.2 s.
- What is produced to a partition together goes in batches of our making, one after the other: it lands in its
  order, of a failure only a beginning has landed, and a row costs a fifth of a send of its own.
- ``trusted``: no other process can own a partition of ours, because the group heard from
  us within the session timeout. Counted from before the heartbeat was sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from aiokafka.errors import MessageSizeTooLargeError
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from cronstream.clock import Clock
from cronstream.dead_letters import Headers

FETCH_WAIT_MS = 20
IDLE_FETCH_WAIT_MS = 200
IDLE_AFTER_SECONDS = 1.0
FETCH_SECONDS = 0.2
BATCH_BYTES = 512 * 1024
"""Of a produced batch, which the broker takes as one: half of what it takes by default."""
RECORD_BYTES = 1_000_000
"""A larger record is refused here, as the broker would."""
TRUSTED_SHARE = 0.8
"""The part of the session timeout in which the process trusts its membership."""


class Membership:
    """When the group last heard from this process. Written by the consumer's thread."""

    def __init__(self, clock: Clock, session_seconds: float) -> None:
        self._clock = clock
        self._trusted_ns = round(session_seconds * TRUSTED_SHARE * 1e9)
        self._heard_ns: int | None = None

    def heard(self, sent_boot_ns: int) -> None:
        """The group answered what was sent then."""
        self._heard_ns = sent_boot_ns

    def trusted(self) -> bool:
        """True while no other member can have been given our partitions."""
        return self._heard_ns is not None and self._clock.boot_ns() < self._heard_ns + self._trusted_ns


class ConsumerThread(driver.AIOKafkaConsumerThread):
    """The thread in which aiokafka runs."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer

    async def on_start(self) -> None:
        await super().on_start()
        self._pace_fetches()
        coordinator: Any = self._ensure_consumer()._coordinator
        heartbeat = coordinator._do_heartbeat
        app: Any = self.app
        membership: Membership = app.membership
        clock: Clock = app.clock

        async def watched() -> bool:
            sent = clock.boot_ns()
            answered: bool = await heartbeat()
            if answered and not coordinator._rejoin_needed_fut.done():
                membership.heard(sent)
            return answered

        coordinator._do_heartbeat = watched

    def _pace_fetches(self) -> None:
        """The wait of the next fetch is decided before it is sent: when the one before has ended."""
        fetcher: Any = self._ensure_consumer()._fetcher
        fetch = fetcher._proc_fetch_request
        app: Any = self.app
        clock: Clock = app.clock
        brought_ns = clock.boot_ns()

        async def paced(assignment: Any, node: int, request: Any) -> bool:
            nonlocal brought_ns
            brought: bool = await fetch(assignment, node, request)
            now = clock.boot_ns()
            if brought:
                brought_ns = now
            idle = now - brought_ns > IDLE_AFTER_SECONDS * 1e9
            fetcher._fetch_max_wait_ms = IDLE_FETCH_WAIT_MS if idle else FETCH_WAIT_MS
            return brought

        fetcher._proc_fetch_request = paced


class Consumer(driver.Consumer):
    """Commits what the lanes have done; see the module for the rest."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._held: set[TP] = set()
        self._no_source_fetch = asyncio.Event()
        self._no_source_fetch.set()
        self.committable: Callable[[], dict[TP, int]] = dict
        super().__init__(*args, **kwargs)

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        sources = {tp for tp in tps if not self._is_changelog_tp(tp)}
        self._held |= sources
        super().resume_partitions(set(tps) - sources)

    def pause_partitions(self, tps: Iterable[TP]) -> None:
        paused = set(tps)
        self._held -= paused
        self._buffered_partitions -= paused
        super().pause_partitions(paused)

    def resume_flow(self) -> None:
        held, self._held = self._held, set()
        super().resume_partitions(held)
        super().resume_flow()

    async def perform_seek(self) -> None:
        await self._no_source_fetch.wait()
        await super().perform_seek()
        sources = {tp for tp in self.assignment() if not self._is_changelog_tp(tp)}
        fresh = [tp for tp in sources if not self._committed_offset.get(tp)]
        if fresh:
            await self._thread.seek_to_beginning(*map(driver.ensure_aiokafka_TP, fresh))

    async def _getmany(self, active_partitions: Any, timeout: float) -> Any:
        wanted = frozenset(active_partitions)
        if not wanted:
            return {}
        if not all(self._is_changelog_tp(tp) for tp in wanted):
            self._no_source_fetch.clear()
        try:
            return await super()._getmany(wanted, min(timeout, FETCH_SECONDS))  # type: ignore[arg-type]
        finally:
            self._no_source_fetch.set()

    async def _wait_next_records(self, timeout: float) -> Any:
        if self.flow_active and not self._get_active_partitions():
            await self.sleep(FETCH_WAIT_MS / 1000)
            return {}, set()
        return await super()._wait_next_records(timeout)

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Gaps need no account: the lanes know what is done."""

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> Any:
        return iter(())

    def _filter_committable_offsets(self, tps: Any) -> dict[TP, int]:
        self._acked.clear()
        self._acked_index.clear()
        return {tp: offset for tp, offset in self.committable().items() if self._should_commit(tp, offset)}


Produced = tuple[bytes | None, bytes | None, Headers]
"""Key, value and headers."""


class Producer(driver.Producer):
    """Appends lists of records to partitions."""

    async def append(self, topic: str, partition: int, records: Sequence[Produced]) -> int | None:
        """See the function."""
        return await append(self._ensure_producer(), topic, partition, records)


async def append(kafka: Any, topic: str, partition: int, records: Sequence[Produced]) -> int | None:
    """Produce records in their order; the last one's offset once all are acknowledged, None if there are none.

    Raises MessageSizeTooLargeError before anything is sent, and KafkaError when what has landed is unknown:
    then it was a beginning of them, perhaps all.
    """
    for key, value, _ in records:
        if len(key or b"") + len(value or b"") > RECORD_BYTES:
            raise MessageSizeTooLargeError(f"{topic}: a record of more than {RECORD_BYTES} bytes")
    last = None
    begin = 0
    while begin < len(records):
        batch = kafka.create_batch()
        end = begin
        while end < len(records) and _add(batch, records[end]):
            end += 1
        batch.close()
        acknowledged = await (await kafka.send_batch(batch, topic, partition=partition))
        last = acknowledged.offset + end - begin - 1
        begin = end
    return last


def _add(batch: Any, record: Produced) -> bool:
    """False when the batch is full; an empty one takes any record."""
    key, value, headers = record
    return batch.append(timestamp=None, key=key, value=value, headers=headers) is not None


class Transport(driver.Transport):
    """Faust's Kafka transport with the consumer and the producer above."""

    Consumer: ClassVar[Any] = Consumer
    Producer: ClassVar[Any] = Producer
