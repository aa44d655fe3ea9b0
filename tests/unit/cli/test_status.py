"""What ``cronstream status`` makes of what it was told."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from cli.errors import Failure, Unasked
from cli.first_records import Firsts, Place
from cli.groups import Standing, ages_of, asked_twice, beginnings, waiting, what_waits
from cli.status import _alerts, _group, _leader, _started, _streams
from cli.webhook import judged

STARTED = {"lateness_p50_ms": 20.04, "lateness_p99_ms": 250.0, "lateness_max_ms": 61_000.0}


def of(*numbers: int) -> dict[Place, int]:
    """By partition of a topic."""
    return {("attempts", partition): number for partition, number in enumerate(numbers)}


def test_a_group_goes_on_at_what_it_has_committed_or_at_the_first_record() -> None:
    assert beginnings(of(0, 7, 5), of(3, -1001, 2)) == of(3, 7, 5)
    assert beginnings(of(0, 7), {}) == of(0, 7)


def test_what_waits_is_counted_up_to_the_end() -> None:
    assert waiting(of(3, 7, 5), of(3, 10, 9), Firsts()) == of(0, 3, 4)
    assert waiting(of(8), of(3), Firsts()) == of(0), "a topic that was made anew"


def test_markers_alone_are_no_backlog_and_what_an_open_transaction_hides_is() -> None:
    ends = of(10, 10, 10)
    found = Firsts(written_ms=of(9000), none_before={("attempts", 1): 10, ("attempts", 2): 9})
    assert waiting(of(8, 8, 8), ends, found) == of(2, 0, 2)


def test_a_record_is_as_old_as_this_clock_says() -> None:
    assert list(ages_of(Firsts(of(1000, 2001, 9000)), 5000).values()) == [timedelta(seconds=n) for n in (4, 2, 0)]


def test_a_backlog_is_of_one_topic_or_of_all() -> None:
    places = [("triggers", 0), ("triggers", 1), ("outcomes", 0), ("outcomes", 1)]
    waits = dict(zip(places, (0, 3, 4, 0), strict=True))
    # The first was written after the ends were asked for, and is in no count.
    ages = dict(zip(places, (timedelta(hours=1), timedelta(seconds=2), timedelta(seconds=9)), strict=False))
    stand = Standing([], {}, waits, ages)
    assert stand.backlog("triggers") == {
        "backlog": 3,
        "oldest_age": timedelta(seconds=2),
        "backlog_by_partition": {0: 0, 1: 3},
    }
    both = stand.backlog()
    assert (both["backlog"], both["oldest_age"]) == (7, timedelta(seconds=9))
    assert both["backlog_by_partition"] == {0: 4, 1: 3}
    assert stand.backlog("retry")["oldest_age"] is None


def test_what_nobody_takes_is_told_with_its_age() -> None:
    assert what_waits("here.outcomes", {"backlog": 1, "oldest_age": None}) == "1 record of here.outcomes waits"
    late = {"backlog": 1200, "oldest_age": timedelta(minutes=2)}
    assert what_waits("here.outcomes", late) == "1,200 records of here.outcomes wait, the oldest for 2m"


def test_a_group_shows_how_much_waits_for_how_long_and_where() -> None:
    known = {"members": ["w1"], "backlog": 1200, "oldest_age": timedelta(seconds=9)}
    assert _group({**known, "backlog_by_partition": {0: 0, 1: 1200}}) == [
        "w1; backlog 1,200, the oldest for 9s (by partition: 1: 1,200)"
    ]


def test_streams_have_a_line_a_topic() -> None:
    nothing = {"backlog": 0, "oldest_age": None, "backlog_by_partition": {0: 0}}
    late = {"backlog": 3, "oldest_age": timedelta(seconds=40), "backlog_by_partition": {0: 3}}
    answer = {"addresses": ["x:1"], "figures": {"admitted": 1200}}
    assert _streams({**answer, "backlog": {"here.triggers": late, "here.outcomes": nothing}}) == [
        "at x:1",
        "admitted 1,200",
        "here.triggers: backlog 3, the oldest for 40s (by partition: 0: 3)",
        "here.outcomes: backlog 0",
    ]
    assert _streams({**answer, "backlog": None})[2:] == ["backlog: could not be asked"]


def test_how_late_runs_started() -> None:
    assert _started({"runs": 1, **STARTED}) == (
        "scheduled time to a run's start p50 20.0 ms, p99 250.0 ms, max 61,000.0 ms (1 run)"
    )
    assert _started({"runs": 0, **dict.fromkeys(STARTED)}) == "no run started that history knows of"


def test_an_idle_leader_shows_no_old_figures() -> None:
    figures = {
        "loaded": 1,
        "published": 1,
        "requested": 1200,
        "lateness_p50_ms": 3.14,
        "lateness_p99_ms": 9.0,
        "capture_lag_ms": 80.0,
    }
    known = {"node": "a", "address": "x:1", "token": 7, "since": "then", "horizon_seconds": 300.0}
    assert _leader({**known, "figures": figures})[1:] == [
        "1 job loaded (due within the next 5m); 1 trigger of schedules and 1,200 of requests published in this term",
        "in the last minute: scheduled time to the broker's acknowledgement p50 3.1 ms, p99 9.0 ms",
        "in the last minute: no edit",
    ]


def test_kafka_is_asked_twice_before_nobody_knows() -> None:
    problems = [KafkaException(KafkaError(KafkaError._TIMED_OUT)) for _ in range(3)]

    def ask() -> str:
        if problems:
            raise problems.pop()
        return "two members"

    with pytest.raises(Unasked, match="Kafka: "):
        asked_twice(ask)
    assert asked_twice(ask) == "two members"


@pytest.mark.parametrize(
    ("webhook", "line"),
    [
        (None, None),
        ({"backlog": 0, "oldest_age": None}, "webhook: backlog 0"),
        ({"backlog": 1200, "oldest_age": timedelta(seconds=59)}, "webhook: backlog 1,200, the oldest for 59s"),
    ],
)
def test_the_webhook_is_a_line_of_the_alerts(webhook: dict[str, Any] | None, line: str | None) -> None:
    group = {"members": ["a1"], "backlog": 0, "oldest_age": None, "backlog_by_partition": {0: 0}}
    assert _alerts({**group, "webhook": webhook}) == ["a1; backlog 0", *([] if line is None else [line])]


def test_a_webhook_that_let_an_alert_wait_through_its_tries_does_not_get_on() -> None:
    assert judged(3, timedelta(seconds=60)) == {"backlog": 3, "oldest_age": timedelta(seconds=60)}
    with pytest.raises(Failure, match="does not get on: 3 alerts wait for it, the oldest for 12m; what it answers"):
        judged(3, timedelta(minutes=12))
