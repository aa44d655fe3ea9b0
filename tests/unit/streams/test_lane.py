"""A lane takes steps of what waits, and is done only with what is acknowledged."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from aiokafka.errors import MessageSizeTooLargeError

from cronstream.clock import FakeClock
from cronstream.dead_letters import Record
from cronstream.records import Batch
from cronstream.topics import Topics
from streams import status
from streams.index import JobIndex
from streams.lane import STEP_BYTES, WAITING, Lane, Tables
from streams.stages import Admitting, Effects, Send
from streams.status import JobStatus
from tests.unit.streams.making import TRIGGERS, run, triggers

TOPICS = Topics()
DELETED = 13


class Broker:
    """Acknowledges when it is let; remembers everything in order."""

    def __init__(self) -> None:
        self.log: list[tuple[str, object]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures = 0
        self.logged = 0
        self.waiting = 0

    async def send(self, topic: str, partition: int, sends: Sequence[Send]) -> None:
        self.waiting += 1
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise ConnectionError("no broker")
        assert {send.topic for send in sends} == {topic}
        self.log += [(topic, dict(send.headers).get("cronstream-reason")) for send in sends]

    async def write(self, rows: Mapping[bytes, bytes | None]) -> int | None:
        self.waiting += 1
        await self.gate.wait()
        self.logged += len(rows)
        self.log.append(("changelog", tuple(rows)))
        return self.logged

    def store(self, rows: Mapping[bytes, bytes | None], logged: int | None) -> None:
        self.log.append(("store", logged))

    @property
    def topics(self) -> list[str]:
        return [topic for topic, _ in self.log]


class TableOf:
    def __init__(self, broker: Broker) -> None:
        self.log = broker.write
        self.store: Callable[..., None] = broker.store


def new_lane(
    broker: Broker, trusted: Callable[[], bool] = lambda: True, store: Callable[..., None] | None = None
) -> Lane:
    stage = Admitting(TOPICS, 600, [], lambda job_id: job_id == DELETED, FakeClock())
    table = TableOf(broker)
    table.store = store or broker.store
    lane = Lane(0, stage, Tables(table), broker.send, TOPICS, trusted, FakeClock(), Counter())
    lane.open()
    return lane


def record(offset: int, value: bytes | None = None) -> Record:
    return Record(TRIGGERS, 0, offset, None, value or triggers([run(offset)]).encode(), [])


async def until(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not so():
            await FakeClock().asleep(0)


def test_nothing_is_done_before_everything_is_acknowledged() -> None:
    async def story() -> None:
        broker = Broker()
        broker.gate.clear()
        lane = new_lane(broker)
        await lane.put(record(0))
        await lane.put(record(1))
        for _ in range(20):
            await FakeClock().asleep(0)
        assert lane.done == {}
        assert lane.busy
        broker.gate.set()
        await until(lambda: lane.done == {TRIGGERS: 2})
        assert not lane.busy
        assert sorted(broker.topics[:3]) == sorted(["changelog", TOPICS.attempts, TOPICS.attempts])
        assert broker.topics[3:] == ["store"]
        await lane.close()

    asyncio.run(story())


def test_the_index_follows_what_is_stored() -> None:
    class Renaming:
        name = "renaming"

        def decide(self, records: Sequence[Record]) -> Effects:
            jobs = {one.offset: JobStatus(tenant="acme") for one in records}
            return Effects(rows={status.key_of(job): b"" for job in jobs}, jobs=jobs, taken=len(records))

    async def story() -> None:
        broker, index = Broker(), JobIndex()
        tables = Tables(TableOf(broker), index=index)
        lane = Lane(0, Renaming(), tables, broker.send, TOPICS, lambda: True, FakeClock(), Counter())
        broker.gate.clear()
        lane.open()
        await lane.put(record(7))
        for _ in range(20):
            await FakeClock().asleep(0)
        assert index.find("acme", "idle", 0, 10) == []
        broker.gate.set()
        await until(lambda: lane.done == {TRIGGERS: 8})
        assert index.find("acme", "idle", 0, 10) == [7]
        await lane.close()

    asyncio.run(story())


def test_what_waits_while_a_step_is_acknowledged_is_the_next_step() -> None:
    async def story() -> None:
        broker = Broker()
        broker.gate.clear()
        lane = new_lane(broker)
        await lane.put(record(0))
        await until(lambda: broker.waiting == 2)
        for offset in range(1, 9):
            await lane.put(record(offset))
        broker.gate.set()
        await until(lambda: lane.done == {TRIGGERS: 9})
        assert broker.topics.count("store") == 2
        assert broker.topics.count(TOPICS.attempts) == 9
        assert lane.ended == lane.taken == 9
        await lane.close()

    asyncio.run(story())


def test_large_records_have_steps_of_their_own() -> None:
    async def story() -> None:
        broker = Broker()
        lane = new_lane(broker)
        large = triggers([run(job, body=bytes(STEP_BYTES // 2)) for job in (1, 2)])
        for offset in range(3):
            await lane.put(record(offset, large.encode()))
        await until(lambda: lane.done == {TRIGGERS: 3})
        assert broker.topics.count("store") == 3
        await lane.close()

    asyncio.run(story())


def test_a_stage_that_takes_fewer_is_given_the_others_next() -> None:
    class OneByOne:
        name = "shy"

        def __init__(self) -> None:
            self.offered: list[list[int]] = []

        def decide(self, records: Sequence[Record]) -> Effects:
            self.offered.append([record.offset for record in records])
            return Effects(taken=1)

    async def story() -> None:
        broker = Broker()
        stage = OneByOne()
        lane = Lane(0, stage, Tables(TableOf(broker)), broker.send, TOPICS, lambda: True, FakeClock(), Counter())
        for offset in range(3):
            await lane.put(record(offset))
        lane.open()
        await until(lambda: lane.done == {TRIGGERS: 3})
        assert stage.offered == [[0, 1, 2], [1, 2], [2]]
        await lane.close()

    asyncio.run(story())


def test_of_a_step_that_breaks_the_stage_only_the_culprit_is_set_aside() -> None:
    class Picky(Admitting):
        def decide(self, records: Sequence[Record]) -> Effects:
            effects = super().decide(records)
            if any(record.offset == 1 for record in records):
                raise ZeroDivisionError
            return effects

    async def story() -> None:
        broker = Broker()
        stage = Picky(TOPICS, 600, [], lambda _: False, FakeClock())
        lane = Lane(0, stage, Tables(TableOf(broker)), broker.send, TOPICS, lambda: True, FakeClock(), Counter())
        for offset in range(3):
            await lane.put(record(offset))
        lane.open()
        await until(lambda: lane.done == {TRIGGERS: 3})
        assert broker.log.count((TOPICS.dead_letter, b"poison_record")) == 1
        assert broker.topics.count(TOPICS.attempts) == 2
        await lane.close()

    asyncio.run(story())


def test_effects_are_tried_again_until_the_broker_takes_them() -> None:
    async def story() -> None:
        broker = Broker()
        broker.failures = 3
        lane = new_lane(broker)
        await lane.put(record(0))
        await until(lambda: lane.done == {TRIGGERS: 1})
        assert broker.topics.count(TOPICS.attempts) == 1
        assert broker.topics.count("store") == 1
        await lane.close()

    asyncio.run(story())


def test_poison_is_set_aside_and_the_next_record_goes_on() -> None:
    async def story() -> None:
        broker = Broker()
        lane = new_lane(broker)
        await lane.put(record(0, b"not a batch"))
        await lane.put(record(1))
        await until(lambda: lane.done == {TRIGGERS: 2})
        assert (TOPICS.dead_letter, b"poison_record") in broker.log
        await lane.close()

    asyncio.run(story())


def test_a_record_that_breaks_the_stage_is_set_aside() -> None:
    class Broken:
        name = "broken"

        def decide(self, records: Sequence[Record]) -> Effects:
            raise ZeroDivisionError

    async def story() -> None:
        broker = Broker()
        tables = Tables(TableOf(broker))
        lane = Lane(0, Broken(), tables, broker.send, TOPICS, lambda: True, FakeClock(), Counter())
        lane.open()
        await lane.put(record(0))
        await until(lambda: lane.done == {TRIGGERS: 1})
        assert TOPICS.dead_letter in broker.topics
        await lane.close()

    asyncio.run(story())


def test_a_closed_lane_drops_what_waits_and_lets_go_of_who_puts() -> None:
    async def story() -> None:
        broker = Broker()
        broker.gate.clear()
        lane = new_lane(broker)
        putting = asyncio.create_task(_fill(lane, WAITING + 3))
        await until(lambda: lane.taken == WAITING)
        await lane.close()
        await asyncio.wait_for(putting, 5)
        broker.gate.set()
        await lane.put(record(99))
        assert lane.done == {}
        assert not lane.is_open

    asyncio.run(story())


async def _fill(lane: Lane, count: int) -> None:
    for offset in range(count):
        await lane.put(record(offset))


def test_a_lane_that_finishes_ends_the_step_under_way_and_no_other() -> None:
    async def story() -> None:
        broker = Broker()
        broker.gate.clear()
        lane = new_lane(broker)
        await _fill(lane, 1)
        for _ in range(20):
            await FakeClock().asleep(0)
        await lane.put(record(1))
        await lane.put(record(2))
        finishing = asyncio.create_task(lane.finish(5))
        await FakeClock().asleep(0)
        broker.gate.set()
        await finishing
        assert lane.done == {TRIGGERS: 1}

    asyncio.run(story())


def test_nothing_is_sent_while_the_group_may_have_given_the_partition_away() -> None:
    async def story() -> None:
        broker = Broker()
        trusted = False
        lane = new_lane(broker, lambda: trusted)
        await lane.put(record(0))
        for _ in range(20):
            await FakeClock().asleep(0)
        assert broker.log == []
        trusted = True
        await until(lambda: lane.done == {TRIGGERS: 1})
        await lane.close()

    asyncio.run(story())


def test_what_is_never_taken_is_set_aside_and_blocks_nothing() -> None:
    class Refusing(Broker):
        async def send(self, topic: str, partition: int, sends: Sequence[Send]) -> None:
            if any(topic == TOPICS.attempts and Batch.decode(send.value).job_id[0] == 6 for send in sends):
                raise MessageSizeTooLargeError("too large")
            await super().send(topic, partition, sends)

    async def story() -> None:
        broker = Refusing()
        lane = new_lane(broker)
        for offset in (5, 6, 7):
            await lane.put(record(offset))
        await until(lambda: lane.done == {TRIGGERS: 8})
        assert broker.log.count((TOPICS.dead_letter, b"unsendable")) == 1
        assert broker.topics.count(TOPICS.attempts) == 2
        await lane.close()

    asyncio.run(story())


def test_two_topics_of_a_partition_are_done_each_by_its_own_offsets() -> None:
    async def story() -> None:
        broker = Broker()
        lane = new_lane(broker)
        await lane.put(record(7))
        await lane.put(retries(3))
        await until(lambda: lane.done == {TRIGGERS: 8, TOPICS.retry_due: 4})
        await lane.close()

    asyncio.run(story())


def test_a_retry_is_sent_only_once_the_decision_about_it_is_written() -> None:
    async def story() -> None:
        broker = Broker()
        lane = new_lane(broker)
        await lane.put(retries(0))
        await lane.put(record(0))
        await lane.put(retries(1, DELETED))
        await until(lambda: lane.done == {TOPICS.retry_due: 2, TRIGGERS: 1})
        assert broker.topics == ["changelog", TOPICS.attempts, TOPICS.attempts, TOPICS.outcomes, "store"]
        await lane.close()

    asyncio.run(story())


def retries(offset: int, job_id: int = 1) -> Record:
    value = triggers([run(job_id, attempt=offset + 2)]).encode()
    return Record(TOPICS.retry_due, 0, offset, None, value, [])


def test_a_store_without_room_is_told_and_the_record_is_not_done() -> None:
    """Nobody awaits a lane: without its word the partition would stand still, and nobody would know why."""

    async def story() -> None:
        broker = Broker()

        def full(rows: Mapping[bytes, bytes | None], logged: int | None) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        lane = new_lane(broker, store=full)
        assert lane.failure is None
        await lane.put(record(0))
        await until(lambda: lane.failure is not None)
        assert "No space left" in str(lane.failure)
        assert lane.done == {}
        assert lane.busy
        await lane.close()

    asyncio.run(story())


def test_a_lane_that_was_closed_has_not_failed() -> None:
    async def story() -> None:
        lane = new_lane(Broker())
        await lane.close()
        assert lane.failure is None

    asyncio.run(story())
