"""What outcomes come to is the same, in whatever steps they are taken and whatever crashes and repeats.

That is: the status of jobs, which runs start in which order, and that no retry, dead letter or skip is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cronstream.dead_letters import Record
from cronstream.records import Batch, Item, Kind
from cronstream.topics import Topics
from streams.stages import Effects, Settling
from streams.status import KEPT_RUNS, JobStatus
from tests.unit.streams.making import NOON, at, cancel, outcome, outcomes, run, skipped, work

TOPICS = Topics()
KINDS = [Kind.STARTED, Kind.SUCCEEDED, Kind.FAILED, Kind.FAILED, Kind.TIMED_OUT, Kind.LOST]
QUEUE = 4
"""The job whose runs wait for one another."""
TWICE = work(max_attempts=2)

instants = st.integers(NOON, NOON + 13)
reports = st.builds(
    outcome, st.sampled_from(KINDS), st.sampled_from([1, QUEUE]), instants, st.integers(1, 2), work=st.just(TWICE)
)
arrivals = st.builds(run, st.just(QUEUE), instants, kind=st.just(Kind.RUN_QUEUED), body=st.just(TWICE))
others = st.one_of(st.builds(skipped, st.integers(1, 2)), st.builds(cancel, st.integers(1, 2)))
items = st.lists(st.one_of(reports, reports, arrivals, others), min_size=1, max_size=3)
Said = tuple[str, Kind | None, int, int, int]


@dataclass
class Written:
    """Tables, and what was sent."""

    rows: dict[bytes, bytes] = field(default_factory=dict)
    waiting: dict[bytes, bytes] = field(default_factory=dict)
    said: set[Said] = field(default_factory=set)
    """Topic, kind, job, instant, attempt."""
    started: list[Item] = field(default_factory=list)
    """As a worker takes them, who drops what does not come from further on."""
    last: tuple[int, int] = (-1, -1)

    def decide(self, log: list[Batch], first: int, most: int) -> Effects:
        stage = Settling(TOPICS, self.rows.get, self.waiting.get, 2)
        waiting = enumerate(log[first : first + most], first)
        return stage.decide([Record(TOPICS.outcomes, 0, offset, None, batch.encode(), []) for offset, batch in waiting])

    def land(self, effects: Effects, rows: int | None = None, sent: int | None = None) -> None:
        """Of the changelogs, which come one after the other, a beginning; and one of each topic."""
        tables = [(self.waiting, *row) for row in effects.waiting.items()]
        tables += [(self.rows, *row) for row in effects.rows.items()]
        for table, key, value in tables[:rows]:
            if value is None:
                table.pop(key, None)
            else:
                table[key] = value
        for topic in {send.topic for send in effects.sends}:
            for send in [send for send in effects.sends if send.topic == topic][:sent]:
                self.send(topic, Batch.decode(send.value))

    def send(self, topic: str, batch: Batch) -> None:
        for item in batch.items():
            self.said.add((topic, item.kind, item.job_id, item.scheduled_us, item.attempt))
        if topic == TOPICS.attempts:
            assert batch.source is not None
            if (place := (batch.source.offset, batch.source.part)) > self.last:
                self.last = place
                self.started += batch.items()


@dataclass(frozen=True)
class Delivery:
    """A step: carried out, or cut short, whereupon all comes again that is not committed."""

    most: int
    landed: tuple[int, int] | None
    """So many rows, and so many records a topic; None: everything."""
    committed: bool


deliveries = st.lists(
    st.builds(
        Delivery,
        st.sampled_from([4, 3, 2, 1]),
        st.one_of(st.tuples(st.sampled_from([9, 2, 1, 0]), st.integers(0, 2)), st.none()),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(items, min_size=2, max_size=10), st.sets(st.integers(0, 9)), deliveries)
def test_steps_crashes_and_repetitions_change_nothing(
    records: list[list[Item]], twice: set[int], steps: list[Delivery]
) -> None:
    log: list[Batch] = []
    for number, record in enumerate(records):
        log += [outcomes(record, source=at(number))] * (1 + (number in twice))
    world = Written()
    position = committed = 0
    for step in [*steps, *[Delivery(1, None, False)] * len(log)]:
        if position == len(log):
            continue
        effects = world.decide(log, position, step.most)
        if step.landed is None:
            world.land(effects)
            position += effects.taken
            committed = position if step.committed else committed
        else:
            world.land(effects, *step.landed)
            position = committed
    once = Written()
    for offset in range(len(log)):
        once.land(once.decide(log, offset, 1))
    rows = {key: replace(JobStatus.decode(row), span=0) for key, row in world.rows.items()}
    assert rows == {key: JobStatus.decode(row) for key, row in once.rows.items()}
    assert world.started == once.started
    # A retry that has been told of had come through.
    told = {(item.job_id, item.scheduled_us, item.attempt) for batch in log for item in batch.items()}
    assert not [said for said in once.said - world.said if said[1] is not Kind.RUN or said[2:] not in told]
    assert world.waiting == once.waiting
    for status in rows.values():
        assert len({(run.scheduled, run.request_id) for run in status.runs}) == len(status.runs) <= KEPT_RUNS
        assert sum(status.counts) >= sum(run.kind != Kind.STARTED for run in status.runs)
