"""Whatever stands in the dead-letter topic becomes a row."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from cronstream.clock import to_datetime
from cronstream.dead_letters import Record, letter_of
from cronstream.records import Item, Kind
from streams.letters import DeadLetter, own_headers, read_letter
from tests.unit.streams.making import NOON, cancel, outcome, outcomes, run, skipped, triggers

AT = to_datetime(NOON)
RUN = [
    ("cronstream-job-id", b"7"),
    ("cronstream-tenant", "acmé".encode()),
    ("cronstream-name", b"report"),
    ("cronstream-scheduled-time", b"2026-11-29T19:30:00Z"),
    ("cronstream-request-id", b"3"),
    ("cronstream-attempts", b"5"),
    ("cronstream-key", b"7-1-3"),
]


def read(value: bytes | None, reason: str = "exhausted", more: list[tuple[str, bytes]] | None = None) -> DeadLetter:
    record = Record("outcomes", 2, 40, b"k", value, [("trace", b"\xff")])
    made = letter_of(record, reason, "it broke", "streams")
    return read_letter(Record("dead", 1, 9, made.key, made.value, [*made.headers, *(more or [])]), AT)


def test_a_run_is_named_by_its_headers() -> None:
    letter = read(outcomes([outcome(Kind.FAILED, 7)]).encode(), more=RUN)
    assert (letter.job_ids, letter.tenant, letter.name) == ([7], "acmé", "report")
    assert letter.scheduled_time is not None
    assert letter.scheduled_time.isoformat() == "2026-11-29T19:30:00+00:00"
    assert (letter.request_id, letter.attempts, letter.idempotency_key) == (3, 5, "7-1-3")
    assert (letter.reason, letter.stage, letter.error) == ("exhausted", "streams", "it broke")
    assert (letter.topic, letter.partition, letter.offset) == ("outcomes", 2, 40)
    assert (letter.letter_partition, letter.letter_offset) == (1, 9)


def test_the_record_is_kept_as_it_was() -> None:
    letter = read(b"not a batch", "poison_record")
    assert (letter.key, letter.value, letter.cut) == (b"k", b"not a batch", False)
    assert own_headers(json.loads(letter.headers)) == [("trace", b"\xff")]
    assert letter.job_ids == []


def test_items_name_their_job() -> None:
    for value in (
        triggers([run(7), run(7)]),
        outcomes([skipped(7), skipped(7)]),
        outcomes([outcome(Kind.LOST, 7)] * 2),
    ):
        letter = read(value.encode(), "stale_token")
        assert (letter.job_ids, letter.tenant, letter.name, letter.scheduled_time) == ([7], "acme", "report", None)


def test_one_item_names_its_run_as_well() -> None:
    letter = read(triggers([run(7, request_id=4)]).encode(), "stale_token")
    assert (letter.scheduled_time, letter.request_id, letter.attempts) == (to_datetime(NOON), 4, None)
    assert read(outcomes([cancel(7)]).encode()).tenant is None


def test_items_of_several_jobs_name_them_all() -> None:
    letter = read(triggers([run(9), run(7), run(9)]).encode(), "stale_token")
    assert (letter.job_ids, letter.job_id, letter.tenant) == ([7, 9], None, None)


def test_a_letter_produced_twice_is_one_and_others_are_not() -> None:
    value = outcomes([outcome(Kind.FAILED, 7)]).encode()
    assert read(value).identity == read(value, more=RUN).identity
    others = [read(value), read(value, "final"), read(outcomes([outcome(Kind.FAILED, 8)]).encode())]
    assert len({letter.identity for letter in others}) == 3


def test_instants_that_no_calendar_has_are_left_out() -> None:
    letter = read(triggers([Item(Kind.RUN, 7, 2**62)]).encode(), "stale_token")
    assert (letter.job_ids, letter.scheduled_time) == ([7], None)


OURS = [name for name, _ in RUN]
names = st.sampled_from([*OURS, "cronstream-offset", "cronstream-topic", "x"]) | st.text(max_size=5)


@settings(deadline=None)
@given(
    st.none() | st.binary(max_size=60),
    st.lists(st.tuples(names, st.binary(max_size=12) | st.sampled_from([b"-1", b"9" * 30, b"1_0"])), max_size=9),
)
def test_noise_is_a_row_too(value: bytes | None, headers: list[tuple[str, bytes]]) -> None:
    letter = read_letter(Record("dead", 0, 1, None, value, headers), AT)
    assert letter.value == (value or b"")
    for text in (letter.reason, letter.error, letter.tenant or "", letter.headers):
        assert "\x00" not in text
        text.encode()
    assert 0 <= letter.offset < 1 << 63
    assert 0 <= letter.partition < 1 << 31
