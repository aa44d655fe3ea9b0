"""OneRunPerScheduledTime, the worker's half: an attempt is started once unless its worker died with it.

A model of the two logs and of workers that crash between any two effects. What
the workers decide comes from the real ``Progress``, ``DoneLog`` and ``decide``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cronstream.records import Batch, Item, Kind, Source
from workers.donelog import DoneLog, Key, Verdict, decide
from workers.progress import Position, Progress, decode_metadata, encode_metadata


@dataclass
class Worker:
    """What dies with a process."""

    progress: Progress
    log: DoneLog
    next_offset: int
    redelivered_below: int
    waiting: dict[Key, int] = field(default_factory=dict)
    starting: dict[Key, int] = field(default_factory=dict)
    running: dict[Key, int] = field(default_factory=dict)
    unacknowledged: list[tuple[int, int]] = field(default_factory=list)
    """Ends in the log whose acknowledgement (outcome's offset, attempts offset) is still to come."""


class TakeoverMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.attempts: list[tuple[Source, list[Key]]] = []
        self.outcomes: list[Batch] = []
        self.committed: tuple[int, str] = (0, "")
        self.executions: Counter[Key] = Counter()
        self.ends: Counter[Key] = Counter()
        self.worker: Worker | None = None
        self.emitted: list[tuple[Source, list[Key]]] = []
        self.jobs = 0

    # Admission.

    @rule(items=st.integers(0, 4), part=st.booleans())
    def emit(self, items: int, part: bool) -> None:
        last = self.emitted[-1][0] if self.emitted else Source("triggers", 0, -1)
        source = Source("triggers", 0, last.offset, last.part + 1) if part else Source("triggers", 0, last.offset + 1)
        keys = [(self.jobs + number, 1000, 0, 1) for number in range(items)]
        self.jobs += items
        self.emitted.append((source, keys))
        self.attempts.append((source, keys))

    @precondition(lambda self: self.emitted)
    @rule(back=st.integers(1, 4))
    def emit_again_after_a_crash(self, back: int) -> None:
        self.attempts += self.emitted[-back:]

    # A worker's life.

    @precondition(lambda self: self.worker is None)
    @rule()
    def take_over(self) -> None:
        offset, metadata = self.committed
        position = decode_metadata(offset, metadata) or Position(offset, 0)
        log = DoneLog()
        for batch in self.outcomes[position.outcomes_from :]:
            log.note(batch)
        end = len(self.attempts)
        progress = Progress(position, outcomes_end=len(self.outcomes), redelivered_below=end)
        self.worker = Worker(progress, log, offset, end)

    @precondition(lambda self: self.worker and self.worker.next_offset < len(self.attempts))
    @rule()
    def take(self) -> None:
        worker = self.worker
        assert worker is not None
        offset = worker.next_offset
        worker.next_offset += 1
        source, keys = self.attempts[offset]
        if not worker.progress.take(offset, source, len(keys)):
            return
        verdicts = decide(keys, worker.log) if offset < worker.redelivered_below else [Verdict.RUN] * len(keys)
        for key, verdict in zip(keys, verdicts, strict=True):
            if verdict is Verdict.RUN:
                worker.waiting[key] = offset
            elif verdict is Verdict.DONE:
                worker.progress.finish(offset)
            else:
                self.write_end(worker, key, offset, Kind.LOST)

    @precondition(lambda self: self.worker and self.worker.waiting)
    @rule(count=st.integers(1, 3))
    def say_started(self, count: int) -> None:
        worker = self.worker
        assert worker is not None
        keys = list(worker.waiting)[:count]
        outcome = self.write(Kind.STARTED, keys)
        worker.progress.outcome_acknowledged(outcome)
        for key in keys:
            worker.starting[key] = worker.waiting.pop(key)

    @precondition(lambda self: self.worker and self.worker.starting)
    @rule()
    def run(self) -> None:
        worker = self.worker
        assert worker is not None
        key, offset = worker.starting.popitem()
        worker.running[key] = offset
        self.executions[key] += 1

    @precondition(lambda self: self.worker and self.worker.running)
    @rule(which=st.integers(0, 9))
    def end(self, which: int) -> None:
        worker = self.worker
        assert worker is not None
        key = list(worker.running)[which % len(worker.running)]
        self.write_end(worker, key, worker.running.pop(key), Kind.SUCCEEDED)

    @precondition(lambda self: self.worker and self.worker.unacknowledged)
    @rule()
    def acknowledge(self) -> None:
        worker = self.worker
        assert worker is not None
        for outcome, offset in worker.unacknowledged:
            worker.progress.outcome_acknowledged(outcome)
            worker.progress.finish(offset)
        worker.unacknowledged.clear()

    @precondition(lambda self: self.worker)
    @rule()
    def commit(self) -> None:
        assert self.worker is not None
        position = self.worker.progress.position()
        self.committed = (position.offset, encode_metadata(position))

    @precondition(lambda self: self.worker)
    @rule()
    def crash(self) -> None:
        self.worker = None

    @precondition(lambda self: self.worker)
    @rule()
    def hand_back(self) -> None:
        worker = self.worker
        assert worker is not None
        for key, offset in [*worker.starting.items(), *worker.running.items()]:
            self.write_end(worker, key, offset, Kind.LOST)
        self.acknowledge()
        self.commit()
        self.worker = None

    # The log of outcomes.

    def write(self, kind: Kind, keys: list[Key]) -> int:
        items = [Item(kind, *key) for key in keys]
        self.outcomes.append(Batch.of(items, token=1, published_at=0))
        return len(self.outcomes) - 1

    def write_end(self, worker: Worker, key: Key, offset: int, kind: Kind) -> None:
        self.ends[key] += 1
        worker.unacknowledged.append((self.write(kind, [key]), offset))

    # Promises.

    @invariant()
    def an_attempt_is_started_once(self) -> None:
        assert all(count == 1 for count in self.executions.values())

    @invariant()
    def an_attempt_ends_once(self) -> None:
        assert all(count == 1 for count in self.ends.values())

    @invariant()
    def the_committed_offset_never_passes_an_unfinished_item(self) -> None:
        for _, keys in self.attempts[: self.committed[0]]:
            assert all(self.ends[key] for key in keys)

    def teardown(self) -> None:
        """Whatever happened: one worker that lives long enough brings everything to an end."""
        if self.worker is None:
            self.take_over()
        worker = self.worker
        assert worker is not None
        while worker.next_offset < len(self.attempts):
            self.take()
        while worker.waiting:
            self.say_started(3)
        while worker.starting:
            self.run()
        while worker.running:
            self.end(0)
        self.acknowledge()
        self.commit()
        assert self.committed[0] == len(self.attempts)
        for _, keys in self.emitted:
            assert all(self.ends[key] == 1 for key in keys)
            assert all(self.executions[key] <= 1 for key in keys)


TestTakeover = TakeoverMachine.TestCase
TestTakeover.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
