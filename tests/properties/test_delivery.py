"""OneRunPerScheduledTime, AttemptsBounded, InOrder, and every admitted run ends: admission, settlement, retries.

One partition's topics and tables outlive everything. Each stage may die at any moment: of the effects of the
step under way any part may have landed that the lane lets land, and what is not committed comes again, in other
steps. Workers run what is on attempts, drop second emissions by their source, and report ends twice, late, and of
runs that nobody heard of. What came out is compared with what the outcomes say, read once and in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cronstream.bodies import Deleted, Policy, Report, Work, pack, skip_of
from cronstream.clock import MINUTE, SECOND, FakeClock
from cronstream.dead_letters import Record
from cronstream.records import Batch, Item, Kind, Source
from cronstream.topics import RETRY_TIERS, Topics
from streams.stages import Admitting, Send, Settling, Stage
from streams.tries import UNSUCCESSFUL
from tests.unit.streams.making import NOON

TOPICS = Topics()
QUEUE_LIMIT = 2
MOST_RUNS = 8
"""Of one job: fewer than a status keeps, beyond which a second end is told by the window alone."""
ALLOW, QUEUE, ALONE, FINAL = 1, 2, 3, 4
OTHER = 20
"""A job that is of no interest: its records carry the time."""
KINDS = {ALLOW: Kind.RUN, QUEUE: Kind.RUN_QUEUED, ALONE: Kind.RUN_ALONE, FINAL: Kind.RUN}
STRANGER = 10
DELETED = pack(Deleted("acme", "report"))
WORKS = {
    job: pack(Work("acme", f"job-{job}", "log", b"{}", Policy(max_attempts=1 + job % 3, backoff_seconds=5)))
    for job in (*KINDS, STRANGER)
}
RETRY_TOPICS = {TOPICS.retry_due, *map(TOPICS.retry, RETRY_TIERS)}

ELSEWHERE = "retry topics"
SENT_TO = (TOPICS.attempts, TOPICS.outcomes, TOPICS.dead_letter, ELSEWHERE)
steps = st.lists(st.sampled_from([TOPICS.triggers, TOPICS.retry_due]), min_size=1, max_size=4)

Run = tuple[int, int, int]
Try = tuple[int, int, int, int]
ends = st.sampled_from([Kind.SUCCEEDED, Kind.FAILED, Kind.FAILED, Kind.TIMED_OUT, Kind.LOST])


@dataclass
class World:
    """What outlives a crash: topics, tables, committed offsets."""

    topics: dict[str, list[Batch]] = field(default_factory=lambda: defaultdict(list))
    waiting_in_tiers: list[Batch] = field(default_factory=list)
    dead: list[tuple[Try, str]] = field(default_factory=list)
    admitted: dict[bytes, bytes] = field(default_factory=dict)
    jobs: dict[bytes, bytes] = field(default_factory=dict)
    waiting: dict[bytes, bytes] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def send(self, send: Send) -> None:
        if send.topic == TOPICS.dead_letter:
            headers = dict(send.headers)
            item = Batch.decode(send.value).item(0)
            self.dead.append(((*item.run, item.attempt), headers["cronstream-reason"].decode()))
        elif send.topic in RETRY_TOPICS:
            self.waiting_in_tiers.append(Batch.decode(send.value))
        else:
            self.topics[send.topic].append(Batch.decode(send.value))


def put(table: dict[bytes, bytes], rows: Iterable[tuple[bytes, bytes | None]]) -> None:
    for key, value in rows:
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value


class Delivery(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.next: dict[str, int] = defaultdict(int)
        self.recover()
        self.time = NOON
        self.runs: dict[int, int] = defaultdict(int)
        self.deleted: set[int] = set()
        self.sources: dict[str, tuple[int, int]] = {}
        self.started: list[Try] = []
        self.running: list[Item] = []
        self.reported: list[Item] = []

    def recover(self) -> None:
        world = self.world
        self.settling = Settling(TOPICS, world.jobs.get, world.waiting.get, QUEUE_LIMIT)
        self.admitting = Admitting(TOPICS, 600, list(world.admitted.values()), self.settling.is_deleted, FakeClock())
        self.next = defaultdict(int, world.committed)

    # The leader.

    @rule(job=st.sampled_from(list(KINDS)), count=st.integers(1, 3), again=st.booleans())
    def publish(self, job: int, count: int, again: bool) -> None:
        count = min(count, MOST_RUNS - self.runs[job])
        if count <= 0 or job in self.deleted:
            return
        self.runs[job] += count
        items = []
        for _ in range(count):
            self.time += SECOND
            items.append(Item(KINDS[job], job, self.time, body=WORKS[job]))
        for _ in range(1 + again):
            self.produce(TOPICS.triggers, items)

    @rule(job=st.sampled_from(list(KINDS)))
    def delete(self, job: int) -> None:
        self.deleted.add(job)
        self.produce(TOPICS.triggers, [Item(Kind.CANCEL, job, self.time, body=DELETED)])

    def produce(self, topic: str, items: list[Item], source: Source | None = None) -> None:
        self.world.topics[topic].append(Batch.of(items, token=1, published_at=self.time, source=source))

    # The streams process.

    @rule(steps=steps)
    def admit(self, steps: list[str]) -> None:
        """Triggers and due retries share a lane, and may share a step."""
        self.take(steps)

    @rule(most=st.integers(1, 4))
    def settle(self, most: int) -> None:
        self.take([TOPICS.outcomes] * most)

    @rule(topics=st.sets(st.sampled_from([TOPICS.triggers, TOPICS.retry_due, TOPICS.outcomes])))
    def commit(self, topics: set[str]) -> None:
        for topic in topics:
            self.world.committed[topic] = self.next[topic]

    @rule()
    def crash(self) -> None:
        self.recover()

    @rule(killed=st.booleans())
    def outage(self, killed: bool) -> None:
        """Nothing of streams runs for a quarter of an hour, the leader goes on; then all of it is read at once."""
        for _ in range(15):
            self.time += MINUTE
            self.produce(TOPICS.triggers, [Item(Kind.CANCEL, OTHER, self.time, body=DELETED)])
        if killed:
            self.recover()
        while self.take([TOPICS.triggers] * 4):
            pass

    @rule(
        topics=st.one_of(steps, st.lists(st.just(TOPICS.outcomes), min_size=1, max_size=4)),
        rows=st.integers(0, 4),
        sent=st.fixed_dictionaries({topic: st.integers(0, 4) for topic in SENT_TO}),
    )
    def crash_between_effects(self, topics: list[str], rows: int, sent: dict[str, int]) -> None:
        """Of each changelog and each topic a beginning has landed."""
        if records := self.records(topics):
            effects = self.stage(topics[0]).decide(records)
            all_rows = [(self.world.waiting, row) for row in effects.waiting.items()]
            all_rows += [(self.own_table(topics[0]), row) for row in effects.rows.items()]
            for table, row in all_rows[:rows]:
                put(table, [row])
            if not effects.rows_first or rows >= len(all_rows):
                for send in effects.sends:
                    topic = send.topic if send.topic in sent else ELSEWHERE
                    sent[topic] -= 1
                    if sent[topic] >= 0:
                        self.world.send(send)
        self.recover()

    def take(self, topics: list[str]) -> bool:
        records = self.records(topics)
        if not records:
            return False
        effects = self.stage(topics[0]).decide(records)
        put(self.world.waiting, effects.waiting.items())
        put(self.own_table(topics[0]), effects.rows.items())
        for send in effects.sends:
            self.world.send(send)
        for record in records[: effects.taken]:
            self.next[record.topic] += 1
        return True

    def records(self, topics: list[str]) -> list[Record]:
        """The next records, of these topics in turn."""
        ahead = dict(self.next)
        records = []
        for topic in topics:
            offset, log = ahead.get(topic, 0), self.world.topics[topic]
            if offset < len(log):
                records.append(Record(topic, 0, offset, None, log[offset].encode(), []))
                ahead[topic] = offset + 1
        return records

    def stage(self, topic: str) -> Stage:
        return self.settling if topic == TOPICS.outcomes else self.admitting

    def own_table(self, topic: str) -> dict[bytes, bytes]:
        return self.world.jobs if topic == TOPICS.outcomes else self.world.admitted

    # The mover: any order, each record once.

    @precondition(lambda self: self.world.waiting_in_tiers)
    @rule(data=st.data())
    def move(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.world.waiting_in_tiers) - 1))
        batch = self.world.waiting_in_tiers.pop(number)
        self.world.topics[TOPICS.retry_due].append(replace(batch, published_at=self.time))

    # The workers.

    @rule()
    def work(self) -> None:
        self.start()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), kind=ends)
    def end(self, data: st.DataObject, kind: Kind) -> None:
        item = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        self.report(item, kind)

    @precondition(lambda self: self.reported)
    @rule(data=st.data(), kind=ends)
    def end_again(self, data: st.DataObject, kind: Kind) -> None:
        item = self.reported[data.draw(st.integers(0, len(self.reported) - 1))]
        self.report(item, kind)

    @rule(number=st.integers(0, 2), attempt=st.integers(1, 2), kind=ends)
    def end_of_a_run_that_nobody_heard_of(self, number: int, attempt: int, kind: Kind) -> None:
        self.report(Item(Kind.RUN, STRANGER, NOON + number, 0, attempt, WORKS[STRANGER]), kind)

    def start(self) -> bool:
        offset = self.next["attempts"]
        log = self.world.topics[TOPICS.attempts]
        if offset >= len(log):
            return False
        self.next["attempts"] = self.world.committed["attempts"] = offset + 1
        batch = log[offset]
        assert batch.source is not None
        mark = (batch.source.offset, batch.source.part)
        if mark > self.sources.get(batch.source.topic, (-1, -1)):
            self.sources[batch.source.topic] = mark
            for item in batch.items():
                assert item.kind is Kind.RUN
                self.may_start(item)
                self.started.append((*item.run, item.attempt))
                self.running.append(item)
        return True

    def report(self, item: Item, kind: Kind) -> None:
        self.time += SECOND // 10
        final = item.job_id == FINAL
        body = None if kind is Kind.SUCCEEDED else item.body
        report = Report("acme", f"job-{item.job_id}", "w", self.time, self.time, self.time, work=body, final=final)
        outcome = Item(kind, item.job_id, item.scheduled_us, item.request_id, item.attempt, pack(report))
        self.produce(TOPICS.outcomes, [outcome])
        if item not in self.reported:
            self.reported.append(item)

    def may_start(self, item: Item) -> None:
        """No other run of a job that asked for it is under way, and the job's runs begin in order."""
        if item.attempt > 1 or item.job_id == STRANGER:
            return
        earlier = [one for one in self.started if one[0] == item.job_id]
        assert all(one[1] < item.scheduled_us for one in earlier), "InOrder"
        if item.job_id in (QUEUE, ALONE):
            over = self.over()
            assert all(one[:3] in over for one in earlier), "no overlap"

    # What must be so.

    def first_ends(self) -> dict[Try, Item]:
        """Of each attempt the end that outcomes told first."""
        first: dict[Try, Item] = {}
        for batch in self.world.topics[TOPICS.outcomes]:
            for item in batch.items():
                if item.kind.is_end and item.kind is not Kind.SKIPPED:
                    later = any((*item.run, attempt) in first for attempt in range(item.attempt + 1, 9))
                    if not later:
                        first.setdefault((*item.run, item.attempt), item)
        return first

    def over(self) -> dict[Run, str]:
        """The runs that have come to their end for good, and how."""
        over = {}
        for (job, scheduled, request, attempt), item in self.first_ends().items():
            run = (job, scheduled, request)
            if item.kind in UNSUCCESSFUL:
                if job == FINAL:
                    over[run] = "final"
                elif attempt >= 1 + job % 3:
                    over[run] = "exhausted"
            else:
                over[run] = item.kind.name.lower()
        return over

    @invariant()
    def an_attempt_starts_once(self) -> None:
        assert len(set(self.started)) == len(self.started)

    @invariant()
    def attempts_are_bounded(self) -> None:
        assert all(attempt <= 1 + job % 3 for job, _, _, attempt in self.started)

    @invariant()
    def what_waits_is_bounded(self) -> None:
        per_job: dict[bytes, int] = defaultdict(int)
        for key in self.world.waiting:
            per_job[key[:8]] += 1
        # Beside those that wait: the run under way, and one more that a repetition may ask for.
        assert all(count <= QUEUE_LIMIT + 3 for count in per_job.values())

    def teardown(self) -> None:
        moved = True
        while moved:
            moved = False
            for topic in (TOPICS.triggers, TOPICS.retry_due, TOPICS.outcomes):
                moved |= self.take([topic])
            moved |= self.start()
            while self.world.waiting_in_tiers:
                batch = self.world.waiting_in_tiers.pop(0)
                self.time += MINUTE
                self.world.topics[TOPICS.retry_due].append(replace(batch, published_at=self.time))
                moved = True
            if not moved and self.running:
                self.report(self.running.pop(0), Kind.FAILED)
                moved = True
        self.every_run_that_was_published_ended()

    def every_run_that_was_published_ended(self) -> None:
        over = self.over()
        skipped = {
            item.run: skip_of(item.body).reason
            for batch in self.world.topics[TOPICS.outcomes]
            for item in batch.items()
            if item.kind is Kind.SKIPPED
        }
        published = {
            item.run
            for batch in self.world.topics[TOPICS.triggers]
            for item in batch.items()
            if item.kind != Kind.CANCEL
        }
        assert published == {run for run in over.keys() | skipped.keys() if run[0] != STRANGER}
        assert not over.keys() & skipped.keys()
        assert all(reason == {QUEUE: "queue full", ALONE: "overlap"}[run[0]] for run, reason in skipped.items())
        given_up = {run: how for run, how in over.items() if how in ("exhausted", "final")}
        letters = {one[:3]: reason for one, reason in self.world.dead}
        assert letters == given_up
        assert {run[0] for run, how in over.items() if how == "cancelled"} <= self.deleted


Delivery.TestCase.settings = settings(max_examples=40, stateful_step_count=50, deadline=None)
TestDelivery = Delivery.TestCase
