"""Slots: who runs, under which deadline, and what became of it.

    waiting   in the fair queue; the partition may be handed back without a word
    starting  holds a slot; ``started`` is on its way to the broker
    running   its handler runs, in a task of its own

``started`` is said of the runs that get a slot together, not of a whole record:
what still waits when its worker dies was never started, costs no attempt and is
simply run by the next one.

Lives in the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from cronstream.clock import Clock
from cronstream.fault_points import reach
from cronstream.records import Kind
from workers.attempt import BadPayload, Handler, Result, failed, refused
from workers.handlers import PROGRAMS
from workers.reporter import Reporter
from workers.run import Record, Run
from workers.slots import Slots
from workers.trust import Trust

logger = logging.getLogger(__name__)

FILL_SECONDS = 0.005
"""Slots that fall free within this share one ``started`` record."""
TRUST_SECONDS = 0.1
CUT_SECONDS = 15.0
"""How long handlers may take to die once cancelled."""
_COUNTED_AS = {kind: kind.name.lower() for kind in Kind}


class Immortal(RuntimeError):
    """A handler that was cancelled goes on; only the end of the process ends it."""


class Runner:
    """Runs what is submitted, fairly, in at most ``slots`` tasks beside ``process_slots`` programs."""

    def __init__(
        self,
        slots: int,
        process_slots: int,
        handlers: Mapping[str, Handler],
        reporter: Reporter,
        clock: Clock,
        trust: Trust,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._queue: Slots[Run] = Slots({"task": slots, "program": process_slots}, _slot_class)
        self._handlers = handlers
        self._reporter = reporter
        self._clock = clock
        self._trust = trust
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._active: dict[int, set[Run]] = defaultdict(set)
        """By partition: what holds a slot."""
        self._fill_timer: asyncio.TimerHandle | None = None
        self._filled_at = 0.0
        self._changed = asyncio.Event()

    @property
    def waiting(self) -> int:
        """Runs that have no slot yet."""
        return self._queue.waiting

    @property
    def running(self) -> int:
        """Slots in use."""
        return self._queue.running

    def submit(self, runs: Iterable[Run]) -> None:
        """Let them run when their turn comes. Their work must have been readable."""
        for run in runs:
            self._queue.put(run)
        self._fill_soon()

    async def drain(self, partition: int, seconds: float) -> None:
        """Start nothing more of a partition, let what runs finish, then cut it off and report it lost.

        Returns when nothing of the partition runs and everything said of it is acknowledged.
        """
        self._hand_back(partition)
        try:
            async with asyncio.timeout(seconds):
                while self._active[partition]:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            cut = await self._cut(partition)
            for run in cut:
                self.counts["lost"] += 1
                self._reporter.ended(run, Result(Kind.LOST, "cut off: its worker was stopping"))
        await self._reporter.settled(partition)
        del self._active[partition]

    async def abandon(self, partition: int) -> None:
        """Another worker has the partition: kill what runs, say nothing. Its tenure is over already."""
        self._hand_back(partition)
        await self._cut(partition)
        self._active.pop(partition, None)

    def _hand_back(self, partition: int) -> None:
        self._queue.remove(lambda run: run.record.partition == partition)

    async def _cut(self, partition: int) -> list[Run]:
        """Cancel a partition's runs and wait until they are dead; those that had not ended."""
        cut = list(self._active[partition])
        tasks = [run.task for run in cut if run.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            _, alive = await asyncio.wait(tasks, timeout=CUT_SECONDS)
            if alive:
                raise Immortal(f"{len(alive)} handlers of partition {partition} do not stop")
        lost = [run for run in cut if run in self._active[partition]]
        for run in lost:
            self._release(run)
        return lost

    def _fill_soon(self) -> None:
        if self._fill_timer is None:
            delay = self._filled_at + FILL_SECONDS - self._loop.time()
            self._fill_timer = self._loop.call_later(max(0.0, delay), self._fill)

    def _fill(self) -> None:
        """Give free slots to whoever is next."""
        self._fill_timer = None
        self._filled_at = self._loop.time()
        if not self._trust.holds(self._clock.boot_ns()):
            self._fill_timer = self._loop.call_later(TRUST_SECONDS, self._fill)
            return
        now = self._clock.wall_us()
        by_record: dict[Record, list[Run]] = {}
        for run in self._queue.take_all():
            run.started_at = now
            self._active[run.record.partition].add(run)
            by_record.setdefault(run.record, []).append(run)
        if by_record:
            reach("work.taken")
        for record, runs in by_record.items():
            self._reporter.started(record, runs, self._begin)

    def _begin(self, runs: Sequence[Run]) -> None:
        """``started`` is acknowledged: run them, unless they were cut off meanwhile."""
        reach("work.started")
        runs = [run for run in runs if run in self._active[run.record.partition] and not run.record.tenure.over]
        if not runs:
            return
        if not self._trust.holds(self._clock.boot_ns()):
            self._loop.call_later(TRUST_SECONDS, self._begin, runs)
            return
        for run in runs:
            run.task = self._loop.create_task(self._run(run))

    async def _run(self, run: Run) -> None:
        try:
            result = await self._execute(run)
            reach("work.ran")
        except asyncio.CancelledError:
            return  # Cut: whoever cut it says so, or nobody does.
        except BaseException as problem:
            self._on_failure(problem)
            raise
        if run in self._active[run.record.partition] and not run.record.tenure.over:
            self._release(run)
            self.counts[_COUNTED_AS[result.kind]] += 1
            self._reporter.ended(run, result)

    async def _execute(self, run: Run) -> Result:
        assert run.work is not None
        handler = self._handlers.get(run.work.handler)
        if handler is None:
            known = ", ".join(sorted(self._handlers))
            # Not final: another worker may be newer.
            return failed(f"no handler {run.work.handler!r}; this worker has {known}")
        seconds = run.work.policy.timeout_seconds
        run.started_at = self._clock.wall_us()
        attempt = run.to_attempt(run.started_at + round(seconds * 1e6))
        deadline = asyncio.timeout(seconds)
        try:
            async with deadline:
                return await handler.run(attempt)
        except TimeoutError as error:
            if deadline.expired():
                waiting = f", waiting for {attempt.waits_for}" if attempt.waits_for else ""
                stopped = f"stopped at its deadline of {seconds:g} s{waiting}"
                return Result(Kind.TIMED_OUT, stopped, attempt.partial_output)
            return failed(f"TimeoutError: {error}")
        except BadPayload as error:
            return refused(str(error))
        except Exception as error:
            return failed(f"{type(error).__name__}: {error}")

    def _release(self, run: Run) -> None:
        self._active[run.record.partition].discard(run)
        self._queue.done(run)
        self._changed.set()
        if self._queue.waiting:
            self._fill_soon()


def _slot_class(run: Run) -> str:
    return "program" if run.handler in PROGRAMS else "task"
