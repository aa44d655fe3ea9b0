"""OneRunPerScheduledTime, NoRunLost and NoStaleTerm of admission, through crashes between any two effects.

A log of triggers records is admitted by a process that may die at any moment: of the effects
of the step under way any part may have landed, in the changelog a prefix. What came out is
compared with an oracle that reads the log once, without crashes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from cronstream.clock import MINUTE, SECOND, FakeClock
from cronstream.dead_letters import Record
from cronstream.records import Batch, Item, Kind
from cronstream.topics import Topics
from streams.keys import by_stretch
from streams.stages import Admitting, Effects, Send
from tests.unit.streams.making import NOON, TRIGGERS, run, triggers

TOPICS = Topics()
WINDOW_SECONDS = 600
UNCOMMITTED = 4
"""The most records between the committed offset and the last one under way; the window must hold them."""

Key = tuple[int, int, int, int]

items = st.lists(
    st.builds(
        run,
        st.integers(1, 5),
        st.sampled_from([NOON, NOON + SECOND]),
        st.sampled_from([0, 0, 0, 7]),
        st.sampled_from([1, 1, 2]),
    ),
    max_size=6,
)


@dataclass
class World:
    """What outlives a crash."""

    log: list[Batch] = field(default_factory=list)
    committed: int = 0
    changelog: dict[bytes, bytes] = field(default_factory=dict)
    attempts: list[Batch] = field(default_factory=list)
    dead: list[tuple[int, Batch]] = field(default_factory=list)


class Admission(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.next = 0
        self.clock = FakeClock()
        self.stage = self.recovered()
        self.time = NOON

    def recovered(self) -> Admitting:
        return Admitting(TOPICS, WINDOW_SECONDS, list(self.world.changelog.values()), lambda _: False, self.clock)

    @rule(batch=items, token=st.integers(1, 4), step=st.integers(0, 5 * MINUTE), wild=st.booleans())
    def publish(self, batch: list[Item], token: int, step: int, wild: bool) -> None:
        self.time += step
        published_at = self.time + (10**12 if wild and token == 4 else 0)
        self.announce(token, published_at)
        self.world.log.append(triggers(batch, token=token, published_at=published_at))

    def announce(self, token: int, published_at: int) -> None:
        """A leader begins with a run of its own: its row stays for the token, and comes back with its ids."""
        if all(batch.token < token for batch in self.world.log):
            first = run(1000 + len(self.world.log))
            self.world.log.append(triggers([first], token=token, published_at=published_at))

    @rule(token=st.integers(1, 4), job_id=st.integers(1, 5))
    def let_the_window_pass(self, token: int, job_id: int) -> None:
        """A leader that has little to say for a quarter of an hour."""
        self.announce(token, self.time)
        for _ in range(15):
            self.time += MINUTE
            self.world.log.append(triggers([run(job_id)], token=token, published_at=self.time))
        for _ in range(15):
            self.take()

    @rule(most=st.integers(1, 4))
    def take_step(self, most: int) -> None:
        self.take(most)

    def take(self, most: int = 1) -> None:
        if self.next < len(self.world.log):
            effects = self.decide(most)
            self.land(effects, len(effects.rows), effects.sends)
            self.next += effects.taken
            if self.next - self.world.committed > UNCOMMITTED:
                self.world.committed = self.next

    @rule()
    def commit(self) -> None:
        self.world.committed = self.next

    @rule()
    def crash(self) -> None:
        self.stage = self.recovered()
        self.next = self.world.committed

    @rule(most=st.integers(1, 4), logged=st.integers(0, 4), sent=st.sets(st.integers(0, 4)))
    def crash_between_effects(self, most: int, logged: int, sent: set[int]) -> None:
        if self.next < len(self.world.log):
            effects = self.decide(most)
            self.land(effects, logged, [send for number, send in enumerate(effects.sends) if number in sent])
        self.crash()

    def decide(self, most: int) -> Effects:
        self.clock.advance(WINDOW_SECONDS)  # so that the records' clock alone says what leaves
        end = min(self.next + most, self.world.committed + UNCOMMITTED + 1)
        waiting = enumerate(self.world.log[self.next : end], self.next)
        return self.stage.decide([Record(TRIGGERS, 0, offset, None, batch.encode(), []) for offset, batch in waiting])

    def land(self, effects: Effects, logged: int, sends: list[Send]) -> None:
        for key, value in list(effects.rows.items())[:logged]:
            if value is None:
                self.world.changelog.pop(key, None)
            else:
                self.world.changelog[key] = value
        for send in sends:
            if send.topic == TOPICS.attempts:
                self.world.attempts.append(Batch.decode(send.value))
            elif send.topic == TOPICS.dead_letter:
                batch = Batch.decode(send.value)
                assert batch.source is not None
                self.world.dead.append((batch.source.offset, batch))

    @invariant()
    def the_window_is_bounded(self) -> None:
        assert len(self.world.changelog) <= len(self.world.log)

    def teardown(self) -> None:
        while self.next < len(self.world.log):
            self.take()
        admitted, refused = oracle(self.world.log)
        by_source: dict[int, list[Key]] = {}
        for batch in self.world.attempts:
            assert batch.source is not None
            keys = keys_of(batch)
            assert by_source.setdefault(batch.source.offset, keys) == keys, "a repeated decision is the same decision"
        assert by_source == admitted
        for offset, batch in self.world.dead:
            assert keys_of(batch) == refused[offset]
        assert {offset for offset, _ in self.world.dead} == set(refused)


def keys_of(batch: Batch) -> list[Key]:
    return [(*item.run, item.attempt) for item in batch.items() if item.kind is Kind.RUN]


def oracle(log: list[Batch]) -> tuple[dict[int, list[Key]], dict[int, list[Key]]]:
    """Admitted and refused runs by offset, by the rules read straight from the design."""
    admitted: dict[int, list[Key]] = {}
    refused: dict[int, list[Key]] = {}
    admitted_at: dict[Key, int] = {}
    clock = log[0].published_at if log else 0
    for offset, batch in enumerate(log):
        # What left the window left before this record raised the clock.
        held = {key for key, when in admitted_at.items() if when + WINDOW_SECONDS * SECOND >= clock}
        clock = max(clock, min(batch.published_at, clock + MINUTE))
        stale = any(earlier.token > batch.token for earlier in log[:offset])
        for key in keys_of(batch):
            if stale and key[2] == 0:
                refused.setdefault(offset, []).append(key)
            elif key not in held:
                held.add(key)
                admitted_at[key] = clock
                admitted.setdefault(offset, []).append(key)
    return admitted, refused


@given(items, st.data())
def test_few_items_and_many_are_grouped_alike(batch: list[Item], data: st.DataObject) -> None:
    record = triggers([*batch, run(9)])
    chosen = np.flatnonzero(data.draw(st.lists(st.booleans(), min_size=len(record), max_size=len(record))))
    few, many = (
        [(stretch, keys.tolist(), index.tolist()) for stretch, keys, index in by_stretch(record, chosen, most)]
        for most in (len(record), 0)
    )
    assert few == (many if len(chosen) else [])


Admission.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
TestAdmission = Admission.TestCase
