"""The Faust app: three tables, three agents, and the lanes that do their work.

    triggers ───► agent admit ─────────┐
    retry.due ──► agent admit_retries ─┴► lane of the partition ──► attempts, outcomes, dead-letter
                                          table ``admitted``
    outcomes ───► agent settle ─────────► lane of the partition ──► retry topics, attempts, outcomes, dead-letter
                                          tables ``jobs`` and ``waiting``

The topics are co-partitioned, so one process has all three of a partition, and admission reads in
``jobs`` whether a retry's job was deleted.

Lanes are opened when recovery has ended, before the first record is fetched, and
closed when their partition is revoked. Nothing else here decides anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import faust
from faust.types import TP

from cronstream.clock import Clock
from cronstream.dead_letters import Record
from cronstream.settings import StreamsSettings
from streams.index import JobIndex
from streams.kafka import BATCH_BYTES, Membership, Transport
from streams.lane import Lane
from streams.lane import Tables as LaneTables
from streams.recovery import Tables
from streams.running import Running
from streams.stages import Admitting, Send, Settling, Stage
from streams.tables import OPTIONS, PartitionTable

log = logging.getLogger(__name__)

ADMITTED = "admitted"
JOBS = "jobs"
WAITING = "waiting"
TABLES = (ADMITTED, JOBS, WAITING)
FINISH_SECONDS = 1.0
"""How long a record under way may take once the process is told to stop."""


def app_id(settings: StreamsSettings) -> str:
    """The consumer group, and the prefix of the changelog topics."""
    return f"{settings.installation}-streams"


class StreamsApp(faust.App):
    """Faust's app with our transport, and the lanes of this generation."""

    def __init__(self, settings: StreamsSettings, clock: Clock, **options: Any) -> None:
        self.settings = settings
        self.clock = clock
        self.membership = Membership(clock, settings.session_timeout_seconds)
        self.counts: Counter[str] = Counter()
        self.recovered_rows = 0
        self.lanes: dict[TP, Lane] = {}
        self._indexes: dict[int, JobIndex] = {}
        self._running = Running(clock)
        super().__init__(app_id(settings), **options)

    def _new_transport(self) -> Any:
        return Transport(self.conf.broker_consumer, self, loop=self.loop)

    def _new_consumer(self) -> Any:
        consumer: Any = super()._new_consumer()
        consumer.committable = self.committable
        return consumer

    def committable(self) -> dict[TP, int]:
        """By partition, the offset that a successor would have to begin with."""
        return {tp: lane.done[tp.topic] for tp, lane in self.lanes.items() if tp.topic in lane.done}

    def committed(self) -> dict[TP, int | None]:
        """What this process knows to be committed."""
        consumer: Any = self.consumer
        return dict(consumer._committed_offset) if self.lanes else {}

    def positions(self) -> dict[TP, tuple[int, int]]:
        """By source partition, the next offset to fetch and the end of what may be read."""
        consumer: Any = self.consumer
        kafka = consumer._thread._consumer if self.lanes else None
        positions = {}
        for tp in self.lanes:
            state = kafka._subscription.subscription.assignment.state_value(tp) if kafka else None
            if state is not None and state.has_valid_position and state.lso is not None:
                positions[tp] = (state.position, state.lso)
        return positions

    def owned(self) -> frozenset[int]:
        """The partitions whose jobs' status is answered here."""
        outcomes = self.settings.topics.outcomes
        return frozenset(tp.partition for tp in self.lanes if self.lane_of(outcomes, tp.partition) is not None)

    def running(self) -> int | None:
        """How many runs of the owned partitions are under way; None until that was counted."""
        outcomes = self.settings.topics.outcomes
        changes = {tp.partition: lane.running for tp, lane in self.lanes.items() if tp.topic == outcomes}
        return self._running.total(changes)

    def index_of(self, partition: int) -> JobIndex | None:
        """The index of a partition's jobs; None while it is being made."""
        return self._indexes.get(partition) if self._running.is_counted(partition) else None

    async def take(self, event: Any) -> None:
        """Hand an event to its partition's lane; waits while the lane is full."""
        message = event.message
        lane = self.lanes.get(message.tp)
        if lane is None:
            return
        headers = [(name, value or b"") for name, value in message.headers or []]  # a header may have no value
        await lane.put(Record(message.topic, message.partition, message.offset, message.key, message.value, headers))

    def lane_of(self, topic: str, partition: int) -> Lane | None:
        """The open lane of a partition that is surely ours, else None."""
        lane = self.lanes.get(TP(topic, partition))
        return lane if lane is not None and lane.is_open and self.membership.trusted() else None

    async def open_lanes(self) -> None:
        """Recovery has ended and no record was fetched yet: load the states."""
        started = self.clock.boot_ns()
        self.membership.heard(started)
        assigned = self.consumer.assignment()
        topics = self.settings.topics
        for partition in sorted({tp.partition for tp in assigned}):
            # Sources of one partition number go together; a table that is not ours must not be read.
            ours = {TP(topic, partition) for topic in (topics.triggers, topics.retry_due, topics.outcomes)}
            if not ours <= assigned:
                raise RuntimeError(f"partition {partition} was assigned in part: {sorted(ours & assigned)}")
            admitting, settling = self._lanes_of(partition)
            self.lanes[TP(topics.triggers, partition)] = self.lanes[TP(topics.retry_due, partition)] = admitting
            self.lanes[TP(topics.outcomes, partition)] = settling
            admitting.open()
            settling.open()
            await self.clock.asleep(0)
        log.info(
            "Lanes are open",
            extra={
                "action": "opened",
                "partitions": sorted({tp.partition for tp in self.lanes}),
                "seconds": (self.clock.boot_ns() - started) / 1e9,
            },
        )

    def _lanes_of(self, partition: int) -> tuple[Lane, Lane]:
        """Admission's and settlement's lane, with the state that was recovered."""
        self._indexes[partition] = index = JobIndex()
        admitted = PartitionTable(self, self.tables[ADMITTED], partition)
        jobs = PartitionTable(self, self.tables[JOBS], partition)
        waiting = PartitionTable(self, self.tables[WAITING], partition)
        settings = self.settings
        topics = settings.topics
        settling = Settling(topics, jobs.get, waiting.get, settings.overlap_queue_limit)
        window = settings.dedup_window_seconds
        admitting = Admitting(topics, window, admitted.values(), settling.is_deleted, self.clock)
        self._running.begin(partition, jobs.items(), index)

        def lane(stage: Stage, tables: LaneTables) -> Lane:
            return Lane(partition, stage, tables, self._send, topics, self.membership.trusted, self.clock, self.counts)

        return lane(admitting, LaneTables(admitted)), lane(settling, LaneTables(jobs, waiting, index))

    async def close_lanes(self) -> None:
        """The partitions are someone else's soon: end what is under way and commit it."""
        await self._running.stop()
        await asyncio.gather(*(lane.finish(FINISH_SECONDS) for lane in set(self.lanes.values())))
        if self.lanes:
            try:
                await asyncio.wait_for(self.consumer.commit(), FINISH_SECONDS)
            except TimeoutError:
                log.warning("Not committed in time, the records come again", extra={"action": "close_lanes"})
        self.lanes = {}
        self._indexes = {}

    async def _send(self, topic: str, partition: int, sends: Sequence[Send]) -> object:
        producer: Any = self.producer
        return await producer.append(topic, partition, [(send.key, send.value, send.headers) for send in sends])

    async def on_stop(self) -> None:
        # Faust's own last commit does not arrive any more.
        await self.close_lanes()
        await super().on_stop()


def new_app(settings: StreamsSettings, clock: Clock) -> StreamsApp:
    """The app with its tables, agents and hooks; nothing runs yet."""
    session = settings.session_timeout_seconds
    app = StreamsApp(
        settings,
        clock,
        broker=";".join(f"kafka://{server}" for server in settings.kafka.split(",")),
        datadir=str(Path(settings.data_dir).absolute()),
        store="rocksdb://",
        processing_guarantee="at_least_once",
        key_serializer="raw",
        value_serializer="raw",
        broker_commit_interval=1.0,
        broker_max_poll_records=500,
        broker_session_timeout=session,
        broker_rebalance_timeout=session,
        broker_heartbeat_interval=session / 6,
        broker_request_timeout=max(30.0, session * 3),
        broker_client_id=settings.node,
        broker_max_poll_interval=300.0,
        consumer_auto_offset_reset="earliest",
        producer_acks=-1,
        producer_linger=0,
        producer_max_batch_size=BATCH_BYTES,
        stream_buffer_maxsize=256,
        stream_wait_empty=False,
        stream_recovery_delay=0,
        table_standby_replicas=0,
        topic_partitions=settings.partitions,
        topic_allow_declare=False,
        topic_disable_leader=True,
        TableManager=Tables,
        web_enabled=False,
        worker_redirect_stdouts=False,
    )
    for name in TABLES:
        app.Table(name, key_type=bytes, value_type=bytes, partitions=settings.partitions, options=dict(OPTIONS))

    topics = settings.topics
    for name, topic in (("admit", topics.triggers), ("admit_retries", topics.retry_due), ("settle", topics.outcomes)):
        _agent(app, name, topic)

    async def assigned(*_: Any, **__: Any) -> None:
        await app.open_lanes()

    async def revoked(*_: Any, **__: Any) -> None:
        await app.close_lanes()

    complete: Any = app.on_rebalance_complete
    complete.connect(assigned, weak=False)
    app.on_partitions_revoked.connect(revoked, weak=False)
    return app


def _agent(app: StreamsApp, name: str, topic: str) -> None:
    channel = app.topic(topic, key_type=bytes, value_type=bytes, allow_empty=True)

    async def take(stream: Any) -> None:
        async for event in stream.events():
            await app.take(event)

    app.agent(channel, name=name, concurrency=1)(take)


def changelogs(settings: StreamsSettings) -> list[str]:
    """The topics that recover the tables; compacted, as many partitions as the work topics."""
    return [f"{app_id(settings)}-{name}-changelog" for name in TABLES]
