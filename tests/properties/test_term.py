"""Whole terms of the real dispatcher, reader, writer and planning against the definitions' history.

NeverEarly, NoRunLost, OneRunPerScheduledTime, InOrder and EditsTakeEffect through delayed
captures and writes, lost answers, edits at every moment and leaders that die; see world.py.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.properties.term.world import EDITS, POLICIES, SCHEDULES, World

JOBS = st.integers(0, 4)


class Terms(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.world = World(seed, small=True)

    def _job(self, number: int) -> int:
        return number % len(self.world.histories) + 1

    @precondition(lambda self: len(self.world.histories) < 5)
    @rule(schedule=st.sampled_from(SCHEDULES), policy=st.sampled_from(POLICIES))
    def insert(self, schedule: dict[str, Any], policy: dict[str, Any]) -> None:
        self.world.insert(**policy, **schedule)

    @precondition(lambda self: self.world.histories)
    @rule(job=JOBS, columns=st.sampled_from(EDITS))
    def edit(self, job: int, columns: dict[str, Any]) -> None:
        self.world.edit(self._job(job), **columns)

    @precondition(lambda self: self.world.histories)
    @rule(job=JOBS)
    def delete(self, job: int) -> None:
        self.world.delete(self._job(job))

    @precondition(lambda self: self.world.histories)
    @rule(job=JOBS, captured=st.booleans())
    def run_now(self, job: int, captured: bool) -> None:
        self.world.run_now(self._job(job), captured=captured)

    @precondition(lambda self: self.world.histories)
    @rule(job=JOBS, seconds=st.sampled_from([0.5, 10, 300]), captured=st.booleans())
    def backfill(self, job: int, seconds: float, captured: bool) -> None:
        self.world.backfill(self._job(job), seconds, captured=captured)

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.3, 1.0, 4.0, 20.0, 90.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.clock.advance(seconds)

    @rule(count=st.integers(1, 3), lose=st.booleans())
    def capture(self, count: int, lose: bool) -> None:
        self.world.capture(count, lose=lose)

    @rule()
    def dispatch(self) -> None:
        self.world.act(self.world.dispatch)

    @rule()
    def write(self) -> None:
        self.world.act(self.world.write)

    @rule()
    def read(self) -> None:
        self.world.act(self.world.read)

    @rule(seconds=st.sampled_from([0.2, 0.7, 1.0]), turns=st.integers(1, 12))
    def go_on(self, seconds: float, turns: int) -> None:
        world = self.world
        for _ in range(turns):
            world.clock.advance(seconds)
            world.capture(1)
            world.act(world.read, world.dispatch, world.write)

    @rule()
    def leader_dies(self) -> None:
        self.world.take_office()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.settle()
            self.world.check()


TestTerms = Terms.TestCase
TestTerms.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
