"""A retry walks down the tiers to its instant: not before, and not long after."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cronstream.clock import SECOND
from cronstream.dead_letters import Record
from cronstream.records import MAX_ITEMS, Batch, Item, Kind
from cronstream.topics import RETRY_TIERS, Topics
from streams.moves import Heads, Move
from streams.stages import retry_topic
from streams.tiers import SLOT_US, due_us, in_tiers, tier_of
from tests.unit.streams.making import NOON, WORK, cancel

TOPICS = Topics()
LATEST_US = SECOND + SLOT_US


def retry(job_id: int, not_before: int, attempt: int = 2) -> Item:
    return Item(Kind.RUN, job_id, NOON, 0, attempt, WORK, not_before)


class World:
    """Retry topics of one partition, and a mover that wakes up exactly when something is due."""

    def __init__(self) -> None:
        self.heads = Heads(TOPICS)
        self.offsets: dict[str, int] = {}
        self.now = NOON
        self.due: dict[int, int] = {}
        self.hops = 0

    def put(self, topic: str, value: bytes | None) -> None:
        offset = self.offsets[topic] = self.offsets.get(topic, -1) + 1
        self.heads.take(Record(topic, 0, offset, None, value, []))

    def settle(self, items: list[Item], token: int = 1) -> None:
        for tier, group in in_tiers(items, self.now):
            batch = Batch.of(group, token=token, published_at=self.now)
            self.land(retry_topic(TOPICS, tier), batch.encode())

    def land(self, topic: str, value: bytes) -> None:
        if topic == TOPICS.retry_due:
            for item in Batch.decode(value).items():
                assert item.job_id not in self.due, "handed on once"
                self.due[item.job_id] = self.now
        else:
            self.put(topic, value)

    def move(self) -> Move:
        move = self.heads.move(self.now)
        self.heads.moved(move.offsets)
        for out in move.out:
            self.land(out.topic, out.letter.value)
        return move

    def run(self, until: int | None = None) -> None:
        while (due := self.heads.next_due_us()) is not None and (until is None or due <= until):
            self.now = max(self.now, due)
            self.move()
            self.hops += 1
        self.now = self.now if until is None else until


@given(
    st.lists(
        st.tuples(st.integers(0, 5 * SECOND), st.lists(st.integers(-SECOND, 5000 * SECOND), max_size=8)), max_size=8
    )
)
def test_every_retry_comes_out_once_not_before_its_instant_and_a_second_after_at_most(
    outcomes: list[tuple[int, list[int]]],
) -> None:
    world = World()
    wanted: dict[int, int] = {}
    for pause, delays in outcomes:
        world.run(until=world.now + pause)
        items = [retry(len(wanted) + number, world.now + delay) for number, delay in enumerate(delays)]
        wanted |= {item.job_id: max(item.not_before, world.now) for item in items}
        world.settle(items)
    world.run()
    assert world.due.keys() == wanted.keys()
    for job, not_before in wanted.items():
        assert not_before <= world.due[job] <= not_before + LATEST_US


def test_a_day_is_walked_in_a_hundred_steps() -> None:
    world = World()
    world.settle([retry(1, NOON + 86_400 * SECOND)])
    world.run()
    assert world.due == {1: NOON + 86_400 * SECOND}
    assert world.hops < 100


def test_a_retry_waits_in_the_largest_tier_that_is_not_too_long() -> None:
    tiers = [tier_of(seconds * SECOND) for seconds in (-1, 0, 1, 3, 4, 15, 16, 1023, 1024, 86_400)]
    assert tiers == [None, None, 1, 1, 4, 4, 16, 256, 1024, 1024]
    assert tier_of(1) == min(RETRY_TIERS)


def test_retries_of_one_record_are_put_together_anew_by_what_remains() -> None:
    world = World()
    world.settle([retry(job, NOON + (64 + job) * SECOND) for job in range(40)])
    assert set(world.offsets) == {TOPICS.retry(64)}
    world.now = NOON + 64 * SECOND
    world.move()
    assert set(world.offsets) == {TOPICS.retry(tier) for tier in (1, 4, 16, 64)}
    assert world.due == {0: world.now}


def test_what_a_moment_hands_on_is_packed_by_token() -> None:
    world = World()
    for job in range(MAX_ITEMS + 1):
        world.put(TOPICS.retry(4), Batch.of([retry(job, NOON)], token=1, published_at=NOON).encode())
    world.put(TOPICS.retry(4), Batch.of([retry(9999, NOON)], token=2, published_at=NOON).encode())
    world.now = NOON + 4 * SECOND
    move = world.heads.move(world.now)
    assert [len(Batch.decode(out.letter.value)) for out in move.out] == [MAX_ITEMS, 1, 1]
    assert move.offsets == {(TOPICS.retry(4), 0): MAX_ITEMS + 2}


def test_nothing_is_let_go_before_it_was_handed_on() -> None:
    world = World()
    world.settle([retry(1, NOON + SECOND // 2)])
    world.now = NOON + SECOND
    assert world.heads.move(world.now).offsets == world.heads.move(world.now).offsets != {}
    assert world.heads.places == {(TOPICS.retry(1), 0)}
    world.move()
    assert world.heads.places == set()
    assert world.heads.next_due_us() is None


def test_poison_is_set_aside_and_holds_nobody_up() -> None:
    world = World()
    world.put(TOPICS.retry(1), b"not a batch")
    world.put(TOPICS.retry(1), Batch.of([cancel(5), retry(6, NOON)], token=1, published_at=NOON).encode())
    world.now = NOON + SECOND
    move = world.heads.move(world.now)
    reasons = {out.topic: dict(out.letter.headers).get("cronstream-reason") for out in move.out}
    assert reasons == {TOPICS.dead_letter: b"unknown_kind", TOPICS.retry_due: None}
    assert dict(move.out[0].letter.headers)["cronstream-reason"] == b"poison_record"
    assert move.offsets == {(TOPICS.retry(1), 0): 2}


def test_a_partition_that_went_is_forgotten() -> None:
    world = World()
    world.settle([retry(1, NOON + 9 * SECOND)])
    world.heads.forget([(TOPICS.retry(4), 0)])
    assert world.heads.move(NOON + 99 * SECOND) == Move()


def test_an_empty_record_is_passed_over() -> None:
    empty = Batch.of([], token=1, published_at=NOON)
    assert due_us(1, empty) == NOON + SECOND
    world = World()
    world.put(TOPICS.retry(1), empty.encode())
    world.now = NOON + SECOND
    assert world.move() == Move(offsets={(TOPICS.retry(1), 0): 1})
