"""What follows when a try did not succeed, and when."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronstream.bodies import Policy, Report, pack, report_of
from cronstream.clock import SECOND
from cronstream.records import Item, Kind
from streams.tries import GivenUp, backoff_seconds, delay_us, next_try
from tests.unit.streams.making import NOON, outcome, work

ENDED = NOON + 2 * SECOND

policies = st.builds(
    Policy,
    max_attempts=st.integers(1, 40),
    backoff_seconds=st.floats(0, 1e5),
    backoff_factor=st.floats(0, 100),
    max_backoff_seconds=st.floats(0, 86_400),
    jitter=st.sampled_from(["full", "equal", "none"]),
    first_attempt=st.integers(1, 1000),
)


def decide(
    kind: Kind = Kind.FAILED, attempt: int = 1, *, final: bool = False, asked: int | None = None, **policy: object
):  # type: ignore[no-untyped-def]
    item = outcome(kind, 7, attempt=attempt, error="no", work=work(**policy), final=final, retry_after_us=asked)
    return next_try(item, report_of(item.body), ENDED + SECOND)


def wait_after(attempt: int, **policy: object) -> float:
    return (decide(attempt=attempt, **{"jitter": "none", **policy}).not_before - ENDED) / SECOND


def test_delays_grow_by_the_factor_up_to_the_longest() -> None:
    policy = {"backoff_seconds": 10.0, "backoff_factor": 3.0, "max_backoff_seconds": 200.0, "max_attempts": 9}
    assert [wait_after(attempt, **policy) for attempt in range(1, 6)] == [10, 30, 90, 200, 200]


def test_a_retry_is_the_run_with_the_next_number_and_its_own_policy() -> None:
    retry = decide(max_attempts=3, backoff_seconds=4.0)
    assert (retry.kind, retry.run, retry.attempt) == (Kind.RUN, (7, NOON, 0), 2)
    assert retry.body == work(max_attempts=3, backoff_seconds=4.0)


def test_the_last_try_and_a_final_one_are_given_up() -> None:
    assert decide(attempt=3, max_attempts=3) == GivenUp("exhausted", "no")
    assert decide(attempt=1, max_attempts=1) == GivenUp("exhausted", "no")
    assert decide(final=True) == GivenUp("final", "no")


def test_a_redrive_has_a_fresh_budget_and_begins_with_the_first_delay() -> None:
    policy = {"max_attempts": 3, "first_attempt": 6, "backoff_seconds": 10.0}
    assert wait_after(6, **policy) == 10
    assert wait_after(7, **policy) == 20
    assert decide(attempt=8, **policy) == GivenUp("exhausted", "no")


def test_a_lost_attempt_is_tried_at_once() -> None:
    assert decide(Kind.LOST, backoff_seconds=600.0).not_before == ENDED
    assert decide(Kind.LOST, attempt=5).reason == "exhausted"


def test_what_the_target_asks_for_is_kept_within_the_longest_delay() -> None:
    policy = {"backoff_seconds": 1.0, "max_backoff_seconds": 60.0}
    assert decide(asked=ENDED + 20 * SECOND, **policy).not_before == ENDED + 20 * SECOND
    assert decide(asked=ENDED + 999 * SECOND, **policy).not_before == ENDED + 60 * SECOND
    assert decide(asked=ENDED - 999 * SECOND, jitter="none", **policy).not_before == ENDED + SECOND


def test_what_cannot_be_tried_again_is_a_dead_letter() -> None:
    for kept in (None, b"\xc1"):
        item = outcome(Kind.FAILED, 7, work=kept)
        follows = next_try(item, report_of(item.body), ENDED)
        assert isinstance(follows, GivenUp)
        assert follows.reason == "poison_item"


@given(policies, st.integers(0, 50))
def test_a_delay_is_within_its_jitter_and_always_the_same(policy: Policy, tries: int) -> None:
    item = Item(Kind.FAILED, 7, NOON, attempt=policy.first_attempt + tries)
    longest = backoff_seconds(policy, item.attempt)
    assert 0 <= longest <= policy.max_backoff_seconds
    least = {"full": 0.0, "equal": 0.5, "none": 1.0}[policy.jitter]
    assert longest * least - 1e-5 <= delay_us(policy, item) / SECOND <= longest + 1e-5
    assert delay_us(policy, item) == delay_us(policy, item)


@pytest.mark.parametrize(("jitter", "begin"), [("full", 0), ("equal", 15)])
def test_ten_thousand_jobs_that_fail_at_once_do_not_come_back_at_once(jitter: str, begin: int) -> None:
    """Thirty seconds of backoff: evenly over the seconds there are, give or take five sigma."""
    body = work(jitter=jitter, backoff_seconds=30.0)
    report = Report("acme", "report", "w1", NOON, NOON, ENDED, "no", work=body)
    per_second: Counter[int] = Counter()
    for job in range(10_000):
        retry = next_try(Item(Kind.FAILED, job, NOON, body=pack(report)), report, ENDED)
        assert isinstance(retry, Item)
        per_second[(retry.not_before - ENDED) // SECOND] += 1
    seconds = range(begin, 30)
    fair = 10_000 / len(seconds)
    assert set(per_second) == set(seconds)
    assert max(per_second.values()) < fair + 5 * fair**0.5
    assert min(per_second.values()) > fair - 5 * fair**0.5


def test_two_attempts_of_a_run_wait_differently() -> None:
    waits = [delay_us(Policy(backoff_factor=1.0), Item(Kind.FAILED, 7, NOON, attempt=n)) for n in range(1, 20)]
    assert all(one != other for one, other in pairwise(waits))
