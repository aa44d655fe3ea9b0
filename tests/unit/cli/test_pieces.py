"""The command's pure parts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from cli.asking import accepted, told
from cli.errors import Failure, Misuse, explain, sentences
from cli.jobs import next_run
from cli.output import count, instant, iso_span, span, text
from cli.references import readings
from cli.requests import fields as request_fields
from cli.requests import line, published
from cli.runs import fields, of_request
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


def test_a_topic_with_another_partition_count_is_refused_by_name() -> None:
    with pytest.raises(Failure, match=r"topic here\.triggers has 12 partitions, not 4") as refused:
        missing(SPECS, {**THERE, "here.triggers": 12})
    assert "CRONSTREAM_PARTITIONS" in refused.value.message


def test_what_a_part_says_is_shown_as_it_says_it() -> None:
    failure = Failure("topics are missing")
    assert explain(failure) is failure


def test_message_detail_and_hint_are_sentences() -> None:
    said = sentences("ends is in the future", "ends is '2999-01-01 00:00:00+00'.", None)
    assert said == "ends is in the future. ends is '2999-01-01 00:00:00+00'."


def test_an_answer_says_how_many_runs_it_makes_where_that_is_known() -> None:
    answer = {
        "command": "backfill",
        "job_id": 3,
        "tenant": "a",
        "name": "b",
        "request_id": 14,
        "begins": "x",
        "ends": "y",
    }
    assert told({**answer, "runs": 1}) == "job 3 (a/b): backfill is request 14, 1 run, x to y"
    assert told({**answer, "runs": None}) == "job 3 (a/b): backfill is request 14, x to y"


AT = datetime(2026, 1, 1, 6, tzinfo=UTC)
LATER = AT + timedelta(hours=2)
BACKFILL: dict[str, Any] = {
    "number": 14,
    "kind": "backfill",
    "job_id": 3,
    "tenant": "a",
    "name": "b",
    "state": "open",
    "published": 7,
    "runs": 25,
    "begins": AT,
    "ends": LATER,
    "run_request_id": 14,
    "requested_at": LATER,
    "reason": None,
}


def test_a_request_is_a_line() -> None:
    shown = "2026-01-01T06:00:00Z to 2026-01-01T08:00:00Z"
    assert line(BACKFILL) == (14, "backfill", 3, "a/b", "open", "7 of 25", shown, LATER, None)
    once = {**BACKFILL, "kind": "run-now", "begins": AT, "ends": AT, "runs": 1, "published": 0}
    assert line(once)[5:7] == ("0 of 1", "2026-01-01T06:00:00Z")
    edit = {**BACKFILL, "kind": "patch", "begins": None, "ends": None, "runs": None, "published": 0}
    assert line(edit)[5:7] == (None, None)


@pytest.mark.parametrize(
    ("tenant", "name", "shown"), [("a", "b", "a/b"), ("top", None, "top/-"), (None, "b", "-/b"), (None, None, None)]
)
def test_a_name_that_a_request_does_not_have_is_a_dash(tenant: str | None, name: str | None, shown: str | None) -> None:
    row = {**BACKFILL, "tenant": tenant, "name": name}
    assert line(row)[3] == shown
    asked = {"id": None, "cursor": None, "attempt": None, "requested_by": "u", "ended_at": None}
    assert request_fields({**row, **asked}, {})["job"] == ("3" if shown is None else f"3 ({shown})")


def test_a_backfill_of_nobody_knows_how_many_shows_what_is_published() -> None:
    assert published({**BACKFILL, "runs": None}) == "7"
    assert published({**BACKFILL, "runs": None, "state": "refused"}) is None


ANY = {"job_id": None, "tenants": None, "names": None, "state": None, "since": None}


def test_the_runs_of_a_request_are_looked_for_where_they_lie() -> None:
    assert of_request(14, BACKFILL, ANY) == {**ANY, "job_id": 3, "request_id": 14, "since": AT, "until": LATER}
    assert of_request(14, BACKFILL, {**ANY, "since": LATER})["since"] == LATER
    assert of_request(20, {**BACKFILL, "kind": "redrive", "run_request_id": 0}, ANY)["request_id"] == 0
    named = {**ANY, "tenants": ["a"], "names": ["old"]}
    assert of_request(14, BACKFILL, named) == {**named, "request_id": 14, "since": AT, "until": LATER}


def test_a_forgotten_request_leaves_its_job_to_be_named_and_an_edit_has_no_runs() -> None:
    with pytest.raises(Failure, match="there is no request 14"):
        of_request(14, None, ANY)
    assert of_request(14, None, {**ANY, "job_id": 3}) == {**ANY, "job_id": 3, "request_id": 14}
    with pytest.raises(Misuse, match="request 15 is no request for runs"):
        of_request(15, {**BACKFILL, "kind": "pause", "begins": None}, ANY)


def test_a_job_without_a_next_run_is_over_or_not_planned_yet() -> None:
    assert next_run({"enabled": True, "over": True, "next_run_at": None}) == "none any more"
    assert next_run({"enabled": True, "over": False, "next_run_at": None}) == "-"
    assert next_run({"enabled": False, "over": False, "next_run_at": AT}) == "paused"


def test_an_attempt_that_runs_says_for_how_long() -> None:
    names = "published_at finished_at due error reason run_count".split()  # noqa: SIM905
    row = {
        **dict.fromkeys(names),
        "job_id": 3,
        "tenant": "a",
        "name": "b",
        "scheduled_time": AT,
        "request_id": 0,
        "attempt": 2,
        "state": "running",
        "started_at": LATER,
        "worker": "w1",
        "running_for": timedelta(hours=3, seconds=1, microseconds=7),
    }
    assert fields(row) == {
        "job": "3 (a/b)",
        "scheduled": AT,
        "attempt": 2,
        "state": "running",
        "started": LATER,
        "took": "3h1s so far",
        "worker": "w1",
    }


def test_the_stored_answer_of_a_command_that_was_refused_is_told_as_such() -> None:
    answer = {"id": "mine", "command": "run-now", "tenant": "a", "name": "b", "accepted": True, "request_id": 14}
    assert accepted(answer) == answer
    refused = answer | {"accepted": False, "error": {"message": "there is no job a/b"}}
    with pytest.raises(Failure, match=r"to run-now of a/b, which was refused: there is no job a/b \("):
        accepted(refused)
