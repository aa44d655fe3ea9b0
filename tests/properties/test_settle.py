"""The status of jobs is that of the outcomes, read once and in order, whatever crashes and repeats."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from msgspec.structs import replace

from cronstream.dead_letters import Record
from cronstream.records import Batch, Item, Kind
from cronstream.topics import Topics
from streams.stages import Effects, Settling
from streams.status import KEPT_RUNS, JobStatus
from tests.unit.streams.making import NOON, cancel, outcome, outcomes, skipped

TOPICS = Topics()
KINDS = [Kind.STARTED, Kind.SUCCEEDED, Kind.FAILED, Kind.TIMED_OUT, Kind.LOST]

reports = st.builds(outcome, st.sampled_from(KINDS), st.integers(1, 2), st.integers(NOON, NOON + 13), st.integers(1, 2))
items = st.lists(
    st.one_of(reports, reports, st.builds(skipped, st.integers(1, 3)), st.builds(cancel, st.integers(1, 3)))
)


class Settlement(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log: list[Batch] = []
        self.rows: dict[bytes, bytes] = {}
        self.next = 0
        self.committed = 0

    @rule(batch=items)
    def happen(self, batch: list[Item]) -> None:
        self.log.append(outcomes(batch))

    @rule()
    def happen_again(self) -> None:
        if self.log:
            self.log.append(self.log[-1])

    @rule(most=st.integers(1, 4))
    def take(self, most: int) -> None:
        if self.next < len(self.log):
            effects = self.decide(most)
            self.land(effects, None)
            self.next += effects.taken

    @rule()
    def commit(self) -> None:
        self.committed = self.next

    @rule(most=st.integers(1, 4), logged=st.integers(0, 3))
    def crash_between_rows(self, most: int, logged: int) -> None:
        if self.next < len(self.log):
            self.land(self.decide(most), logged)
        self.next = self.committed

    def decide(self, most: int) -> Effects:
        stage = Settling(TOPICS, self.rows.get, {}.get, 100)
        waiting = range(self.next, min(self.next + most, len(self.log)))
        return stage.decide(
            [Record(TOPICS.outcomes, 0, offset, None, self.log[offset].encode(), []) for offset in waiting]
        )

    def land(self, effects: Effects, logged: int | None) -> None:
        for key, value in list(effects.rows.items())[:logged]:
            assert value is not None
            self.rows[key] = value

    def teardown(self) -> None:
        while self.next < len(self.log):
            self.take(1)
        once: dict[bytes, bytes] = {}
        for offset, batch in enumerate(self.log):
            effects = Settling(TOPICS, once.get, {}.get, 100).decide(
                [Record(TOPICS.outcomes, 0, offset, None, batch.encode(), [])]
            )
            once |= {key: value for key, value in effects.rows.items() if value is not None}
        assert {key: replace(JobStatus.decode(row), span=0) for key, row in self.rows.items()} == {
            key: JobStatus.decode(row) for key, row in once.items()
        }
        for row in once.values():
            status = JobStatus.decode(row)
            assert len({(run.scheduled, run.request_id) for run in status.runs}) == len(status.runs) <= KEPT_RUNS
            assert sum(status.counts) >= sum(run.kind != Kind.STARTED for run in status.runs)


Settlement.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSettlement = Settlement.TestCase
