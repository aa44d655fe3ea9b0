"""Service and runner together, with outcomes kept in memory and handlers that do as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from cronstream.bodies import Report, pack
from cronstream.clock import FakeClock
from cronstream.records import Batch, Item, Kind, PoisonRecord
from tests.unit.workers.attempts import a_batch, a_run
from workers.attempt import Attempt, BadPayload, Result, succeeded
from workers.donelog import DoneLog
from workers.progress import Position
from workers.run import Record, Run
from workers.runner import Runner
from workers.service import Service
from workers.takeover import Takeover
from workers.trust import Trust


class Message:
    """Where a record lies."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


class Outcomes:
    """A reporter whose broker acknowledges when it is told to (at once, by default)."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.said: list[tuple[str, int]] = []
        self.errors: dict[int, str | None] = {}
        self.final: dict[int, bool] = {}
        self.workers: dict[int, str] = {}
        self.dead: list[str] = []
        self.holds_started = False
        self.held: list[Callable[[], None]] = []

    def started(self, record: Record, runs: Sequence[Run], then: Callable[[Sequence[Run]], None]) -> None:
        self.said += [("STARTED", run.job_id) for run in runs]
        if self.holds_started:
            self.held.append(lambda: then(runs))
        else:
            asyncio.get_running_loop().call_soon(then, runs)

    def ended(self, run: Run, result: Result) -> None:
        self.said.append((result.kind.name, run.job_id))
        self.errors[run.job_id] = result.error
        self.final[run.job_id] = result.final
        self.workers[run.job_id] = run.report("w1").worker
        asyncio.get_running_loop().call_soon(self._service.finished, run.record, 1)

    async def settled(self, partition: int) -> None:
        for _ in range(3):
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)

    def dead_letter(self, message: Message, reason: str, then: Callable[[], None]) -> None:
        self.dead.append(reason)
        asyncio.get_running_loop().call_soon(then)


class Obedient:
    """Job 1 ends at once, 2 hangs, 3 raises, 4 raises TimeoutError, 5 waits, 6 cannot read its payload."""

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.cut: list[int] = []
        self.most = 0
        self._now = 0

    async def run(self, attempt: Attempt) -> Result:
        self.ran.append(attempt.job_id)
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            if attempt.job_id == 2:
                await asyncio.Event().wait()
            if attempt.job_id == 5:
                attempt.waits_for = "its turn"
                await asyncio.Event().wait()
            if attempt.job_id == 3:
                raise KeyError("nothing there")
            if attempt.job_id == 6:
                raise BadPayload("no url")
            if attempt.job_id == 4:
                raise TimeoutError("the target's own")
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        except asyncio.CancelledError:
            self.cut.append(attempt.job_id)
            raise
        finally:
            self._now -= 1
        return succeeded("fine")

    async def close(self) -> None:
        pass


class World:
    def __init__(self, slots: int = 10) -> None:
        self.failures: list[BaseException] = []
        self.clock = FakeClock()
        self.trust = Trust(6, 0)
        self.service = Service("attempts", self.clock)
        self.outcomes = Outcomes(self.service)
        self.handler = Obedient()
        runner = Runner(
            slots,
            1,
            {"log": self.handler, "command": self.handler},
            self.outcomes,  # type: ignore[arg-type]
            self.clock,
            self.trust,
            self.failures.append,
        )
        self.service.connect(runner, self.outcomes)  # type: ignore[arg-type]

    def adopt(self, log: DoneLog | None = None, redelivered_below: int = 0) -> None:
        self.service.adopt(Takeover(0, Position(0, 0), redelivered_below, 0, log or DoneLog()))

    def take(self, *items: Item, offset: int = 0, source: int | None = None) -> None:
        batch = a_batch(*items, offset=offset if source is None else source)
        self.service.take(Message(offset), Batch.decode(batch.encode()))  # type: ignore[arg-type]

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not reached():
                await asyncio.get_running_loop().run_in_executor(None, lambda: None)

    def position(self) -> Position:
        return self.service.positions()[0]


def play(story: Callable[[World], Coroutine[Any, Any, None]], slots: int = 10) -> World:
    async def go() -> World:
        world = World(slots)
        await story(world)
        return world

    world = asyncio.run(go())
    assert not world.failures
    return world


def test_started_is_said_before_and_the_end_after() -> None:
    async def story(world: World) -> None:
        world.adopt()
        world.take(a_run(1))
        await world.until(lambda: world.position().offset == 1)

    world = play(story)
    assert world.outcomes.said == [("STARTED", 1), ("SUCCEEDED", 1)]


def test_nothing_runs_until_started_is_acknowledged() -> None:
    async def story(world: World) -> None:
        world.outcomes.holds_started = True
        world.adopt()
        world.take(a_run(1))
        await world.until(lambda: bool(world.outcomes.held))
        assert world.handler.ran == []
        world.outcomes.held.pop()()
        await world.until(lambda: world.position().offset == 1)

    play(story)


def test_a_hanging_run_holds_the_offset_and_nothing_else() -> None:
    async def story(world: World) -> None:
        world.adopt()
        world.take(a_run(2), offset=0)
        world.take(a_run(1), offset=1)
        await world.until(lambda: ("SUCCEEDED", 1) in world.outcomes.said)
        assert world.position().offset == 0
        await world.service.abandon([0])

    play(story)


def test_a_deadline_ends_a_run() -> None:
    async def story(world: World) -> None:
        world.adopt()
        world.take(a_run(2, timeout_seconds=0.05), a_run(5, timeout_seconds=0.05))
        await world.until(lambda: world.position().offset == 1)

    world = play(story)
    assert sorted(world.outcomes.said[-2:]) == [("TIMED_OUT", 2), ("TIMED_OUT", 5)]
    assert sorted(world.handler.cut) == [2, 5]
    assert world.outcomes.errors[2] == "stopped at its deadline of 0.05 s"
    assert world.outcomes.errors[5] == "stopped at its deadline of 0.05 s, waiting for its turn"


def test_a_handlers_exception_is_its_failure() -> None:
    async def story(world: World) -> None:
        world.adopt()
        world.take(a_run(3), a_run(4), a_run(9, handler="nosuch"))
        await world.until(lambda: world.position().offset == 1)

    errors = play(story).outcomes.errors
    assert errors[3] == "KeyError: 'nothing there'"
    assert errors[4] == "TimeoutError: the target's own"
    assert errors[9] == "no handler 'nosuch'; this worker has command, log"


def test_poison_items_fail_and_their_batch_goes_on() -> None:
    async def story(world: World) -> None:
        world.adopt()
        world.take(Item(Kind.RUN, 8, 5, body=b"?"), a_run(1), Item(Kind.SKIP, 9, 5, body=a_run(9).body))
        await world.until(lambda: world.position().offset == 1)

    said = play(story).outcomes.said
    assert sorted(said) == [("FAILED", 8), ("FAILED", 9), ("STARTED", 1), ("SUCCEEDED", 1)]


def test_a_record_that_is_no_batch_is_a_dead_letter_before_it_is_committed() -> None:
    async def story(world: World) -> None:
        world.adopt()
        world.service.take(Message(0), PoisonRecord("not a batch"))  # type: ignore[arg-type]
        assert world.position().offset == 0
        await world.until(lambda: world.position().offset == 1)

    assert play(story).outcomes.dead == ["not a batch"]


def test_a_second_emission_runs_nothing() -> None:
    async def story(world: World) -> None:
        world.adopt()
        world.take(a_run(1), offset=0, source=7)
        world.take(a_run(1), offset=1, source=7)
        await world.until(lambda: world.position().offset == 2)
        assert world.service.ended == 2

    assert play(story).handler.ran == [1]


def test_redelivered_attempts_run_only_if_nobody_started_them() -> None:
    async def story(world: World) -> None:
        log = DoneLog()
        by_another = pack(Report("acme", "job-6", "w0", 5, 77))
        started = Batch.of(
            [Item(Kind.STARTED, n, a_run(n).scheduled_us, body=by_another) for n in (1, 6)], token=1, published_at=0
        )
        ended = Batch.of([Item(Kind.SUCCEEDED, 1, a_run(1).scheduled_us)], token=1, published_at=0)
        log.note(started)
        log.note(ended)
        world.adopt(log, redelivered_below=1)
        world.take(a_run(1), a_run(6), a_run(7))
        await world.until(lambda: world.position().offset == 1)

    world = play(story)
    assert world.handler.ran == [7]
    assert sorted(world.outcomes.said) == [("LOST", 6), ("STARTED", 7), ("SUCCEEDED", 7)]
    assert world.outcomes.workers == {6: "w0", 7: "w1"}


def test_a_drain_waits_cuts_off_and_hands_back_what_waits() -> None:
    async def story(world: World) -> None:
        world.adopt()
        world.take(a_run(2), offset=0)
        await world.until(lambda: world.handler.ran == [2])
        world.take(a_run(1), offset=1)
        positions = await world.service.drain([0], 0.05)
        assert positions[0].offset == 1
        assert world.service.ended == 2

    world = play(story, slots=1)
    assert world.handler.cut == [2]
    assert world.outcomes.said == [("STARTED", 2), ("LOST", 2)]


def test_what_is_starting_when_it_is_cut_off_is_lost() -> None:
    async def story(world: World) -> None:
        world.outcomes.holds_started = True
        world.adopt()
        world.take(a_run(1))
        await world.until(lambda: bool(world.outcomes.held))
        positions = await world.service.drain([0], 0.01)
        assert positions[0].offset == 1
        world.outcomes.held.pop()()

    world = play(story)
    assert world.handler.ran == []
    assert world.outcomes.said == [("STARTED", 1), ("LOST", 1)]


def test_a_lost_partition_is_cut_off_without_a_word_and_may_come_back() -> None:
    async def story(world: World) -> None:
        world.adopt()
        world.take(a_run(2), a_run(1), offset=0)
        await world.until(lambda: ("SUCCEEDED", 1) in world.outcomes.said)
        await world.service.abandon([0])
        world.adopt()
        world.take(a_run(6), offset=0)
        await world.until(lambda: world.position().offset == 1)
        assert world.service.ended == 3

    world = play(story)
    assert world.handler.cut == [2]
    assert not any(kind == "LOST" for kind, _ in world.outcomes.said)


def test_slots_bound_what_runs_at_once() -> None:
    async def story(world: World) -> None:
        world.adopt()
        for offset in range(10):
            world.take(*(a_run(100 * offset + n, tenant=f"t{n}") for n in range(10, 30)), offset=offset)
        await world.until(lambda: world.position().offset == 10)

    world = play(story, slots=4)
    assert len(world.handler.ran) == 200
    assert 1 <= world.handler.most <= 4


def test_a_process_that_stood_still_starts_nothing() -> None:
    async def story(world: World) -> None:
        world.adopt()
        world.clock.advance(30)
        world.take(a_run(1))
        for _ in range(20):
            await asyncio.get_running_loop().run_in_executor(None, lambda: None)
        assert world.outcomes.said == []
        world.trust.alive(world.clock.boot_ns())
        world.clock.advance(2.5)
        world.trust.alive(world.clock.boot_ns())
        await world.until(lambda: world.position().offset == 1)

    play(story)


def test_a_payload_that_cannot_be_read_fails_for_good() -> None:
    async def story(world: World) -> None:
        world.adopt()
        world.take(a_run(3), a_run(6))
        await world.until(lambda: world.position().offset == 1)

    outcomes = play(story).outcomes
    assert outcomes.final == {3: False, 6: True}
    assert outcomes.errors[6] == "no url"


def test_programs_take_no_slot_of_others() -> None:
    async def story(world: World) -> None:
        world.adopt()
        world.take(*(a_run(2, handler="command", tenant=f"t{number}") for number in range(5)))
        world.take(a_run(1), a_run(7), offset=1)
        await world.until(lambda: world.outcomes.said.count(("SUCCEEDED", 1)) == 1)
        await world.until(lambda: world.outcomes.said.count(("SUCCEEDED", 7)) == 1)
        assert world.handler.ran.count(2) == 1
        assert world.service.runner.running == 1

    play(story, slots=1)
