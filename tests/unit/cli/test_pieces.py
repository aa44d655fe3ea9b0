"""The command's pure parts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from confluent_kafka import KafkaError, KafkaException

from cli.errors import Failure, Unasked, explain
from cli.groups import asked_twice, waiting
from cli.output import count, instant, iso_span, span, text
from cli.references import readings
from cli.status import _leader
from cli.topics import missing
from cronstream.topics import Topics

SPECS = Topics("here").specs(4)
THERE = {spec.name: spec.partitions for spec in SPECS}


@pytest.mark.parametrize(
    ("value", "short", "iso"),
    [
        (timedelta(0), "0s", "PT0S"),
        (timedelta(seconds=90), "1m30s", "PT1M30S"),
        (timedelta(hours=4, minutes=30), "4h30m", "PT4H30M"),
        (timedelta(days=7), "7d", "P7D"),
        (timedelta(days=1, seconds=1), "1d1s", "P1DT1S"),
        (timedelta(milliseconds=250), "0.25s", "PT0.25S"),
        (timedelta(seconds=1, microseconds=1), "1.000001s", "PT1.000001S"),
        (timedelta(seconds=-2), "-2s", "-PT2S"),
    ],
)
def test_spans(value: timedelta, short: str, iso: str) -> None:
    assert span(value) == short
    assert iso_span(value) == iso


def test_one_is_no_plural() -> None:
    assert [count(number, "job") for number in (0, 1, 12_000)] == ["0 jobs", "1 job", "12,000 jobs"]


def test_instants_are_shown_in_utc() -> None:
    assert instant(datetime(2026, 3, 8, 3, tzinfo=timezone(timedelta(hours=-4)))) == "2026-03-08T07:00:00Z"
    assert instant(datetime(2026, 3, 8, 3, 0, 0, 120, tzinfo=UTC)) == "2026-03-08T03:00:00.000120Z"


def test_a_value_stays_on_one_line() -> None:
    assert text("a\nb") == "a b"
    assert text(None) == "-"
    assert text(True) == "yes"
    assert text({"url": "http://x"}) == '{"url": "http://x"}'


@pytest.mark.parametrize(
    ("reference", "job_id", "pairs"),
    [
        ("12", 12, []),
        ("99999999999999999999", None, []),
        ("nightly", None, [("default", "nightly")]),
        ("billing/nightly", None, [("billing", "nightly")]),
        ("a/b/c", None, [("a", "b/c"), ("a/b", "c")]),
        ("billing/12", None, [("billing", "12")]),
        ("-3", None, [("default", "-3")]),
        ("٣", None, [("default", "٣")]),
    ],
)
def test_how_a_job_can_be_named(reference: str, job_id: int | None, pairs: list[tuple[str, str]]) -> None:
    assert readings(reference) == (job_id, pairs)


def test_only_missing_topics_are_made() -> None:
    assert missing(SPECS, THERE) == []
    assert missing(SPECS, {}) == SPECS
    assert [spec.name for spec in missing(SPECS, {**THERE, "other": 9}) + missing(SPECS[:1], {})] == ["here.changes"]


def test_what_waits_is_counted_from_what_is_committed_or_from_the_first_record() -> None:
    def of(*offsets: int) -> dict[tuple[str, int], int]:
        return {("attempts", partition): offset for partition, offset in enumerate(offsets)}

    assert waiting(of(0, 7, 5), of(3, 10, 9), of(3, -1001, 2)) == of(0, 3, 4)


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


def test_a_topic_with_another_partition_count_is_refused_by_name() -> None:
    with pytest.raises(Failure, match=r"topic here\.triggers has 12 partitions, not 4") as refused:
        missing(SPECS, {**THERE, "here.triggers": 12})
    assert "CRONSTREAM_PARTITIONS" in refused.value.message


def test_what_a_part_says_is_shown_as_it_says_it() -> None:
    failure = Failure("topics are missing")
    assert explain(failure) is failure
