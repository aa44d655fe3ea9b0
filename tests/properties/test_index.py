"""The index of a partition's jobs, against a plain dict."""

from __future__ import annotations

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from streams.index import MERGE_AT, Entry, JobIndex

STATES = ["succeeded", "failed", "deleted", "running"]
entries = st.builds(Entry, st.integers(-5, 40), st.sampled_from(["acme", "beta"]), st.sampled_from([*STATES, None]))


class IndexMachine(RuleBasedStateMachine):
    """Entries come one by one or many at once, newer and older; questions agree with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.index = JobIndex()
        self.model: dict[int, Entry] = {}

    @rule(many=st.lists(entries, max_size=12))
    def put(self, many: list[Entry]) -> None:
        self.index.put(many)
        self.model.update({entry.job_id: entry for entry in many})

    @rule(many=st.lists(entries, max_size=12, unique_by=lambda entry: entry.job_id))
    def put_older(self, many: list[Entry]) -> None:
        self.index.put_older(many)
        for entry in many:
            self.model.setdefault(entry.job_id, entry)

    @rule(
        tenant=st.sampled_from(["acme", "beta", "nobody"]),
        state=st.sampled_from([None, *STATES, "no state"]),
        after=st.integers(-6, 41),
        most=st.integers(1, 8),
    )
    def find(self, tenant: str, state: str | None, after: int, most: int) -> None:
        expected = sorted(
            entry.job_id
            for entry in self.model.values()
            if entry.job_id > after
            and entry.tenant == tenant
            and (entry.state == state if state else entry.state not in (None, "deleted"))
        )
        assert self.index.find(tenant, state, after, most) == expected[:most]

    @invariant()
    def counts(self) -> None:
        assert len(self.index) == len(self.model)


class SmallMerges(IndexMachine):
    """The same with merges at every few new jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.index.merge_at = 3


SETTINGS = settings(max_examples=50, stateful_step_count=30, deadline=None)
TestIndex = IndexMachine.TestCase
TestIndex.settings = SETTINGS
TestSmallMerges = SmallMerges.TestCase
TestSmallMerges.settings = SETTINGS


def test_pages_follow_one_another_without_holes() -> None:
    ids = random.Random(7).sample(range(10**6), MERGE_AT * 5)
    jobs = JobIndex()
    for begin in range(0, len(ids), 100):
        jobs.put(Entry(job_id, "acme", "failed") for job_id in ids[begin : begin + 100])
    found: list[int] = []
    while page := jobs.find("acme", "failed", found[-1] if found else -1, 100):
        found += page
    assert found == sorted(ids)
