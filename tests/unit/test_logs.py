"""One format for every process: a sentence and its fields, on one line, in UTC."""

from __future__ import annotations

import logging
import sys

from cronstream import logs
from cronstream.logs import FieldsFormatter


def line(message: str, *args: object, exc_info: object = None, **fields: object) -> str:
    record = logging.LogRecord("workers", logging.INFO, __file__, 1, message, args, exc_info)  # type: ignore[arg-type]
    record.created, record.msecs = 1_780_000_000.25, 250.0
    vars(record).update(fields)
    return FieldsFormatter().format(record)


def test_a_line_is_the_time_in_utc_the_level_the_place_a_sentence_and_fields() -> None:
    assert line("Lanes are open: %d", 3, action="opened", seconds=0.123456789, partitions=[0, 1], note="") == (
        "2026-05-28T20:26:40.250Z INFO workers Lanes are open: 3 action=opened seconds=0.123457 partitions=0,1 note=''"
    )


def test_fields_with_blanks_in_them_are_quoted() -> None:
    shown = line("x", one="a b", two=" a", three="a\u00a0b", four="a\u200bb", five=["a", "b c"], six="a")
    assert shown.endswith("x one='a b' two=' a' three='a\\xa0b' four=a\u200bb five='a,b c' six=a")


def test_lines_of_one_formatter_each_tell_their_own_second() -> None:
    formatter = FieldsFormatter()
    shown = []
    for created in (1_780_000_000.25, 1_780_000_000.75, 1_780_000_001.0, 1_780_000_000.0):
        record = logging.LogRecord("workers", logging.INFO, __file__, 1, "x", (), None)
        record.created, record.msecs = created, created % 1 * 1000
        shown.append(formatter.format(record)[17:24])
    assert shown == ["40.250Z", "40.750Z", "41.000Z", "40.000Z"]


def test_what_a_library_says_in_several_lines_is_one() -> None:
    assert line("[^Worker]: Oh\n   no\n\n", action="a\nb").endswith(" [^Worker]: Oh / no action='a\\nb'")


def test_a_traceback_follows_on_lines_that_begin_with_blanks() -> None:
    try:
        raise ValueError("wrong\nthroughout")
    except ValueError:
        first, *rest = line("It failed", exc_info=sys.exc_info(), action="fail").splitlines()
    assert first.endswith("It failed action=fail")
    assert rest[-1] == "  throughout"
    assert all(each.startswith("  ") for each in rest)


def said_at(thinned: logs.Thinned, second: float, line: str, name: str = "coordinator.librdkafka") -> int | None:
    """None: it was kept quiet; else how many were before it."""
    record = logging.makeLogRecord({"name": name, "msg": line, "created": second})
    return vars(record).get("not_shown", 0) if thinned.filter(record) else None


def test_a_broker_that_is_away_does_not_flood_the_log() -> None:
    thinned = logs.Thinned()
    assert said_at(thinned, 100, "FAIL [p#1]: refused") == 0
    assert [said_at(thinned, 100 + number / 20, "FAIL [p#1]: refused") for number in range(1, 100)] == [None] * 99
    assert said_at(thinned, 102, "GETPID [p#1]: retrying") == 0, "another kind is said at once"
    assert said_at(thinned, 102, "FAIL [p#1]: refused", "streams.librdkafka") == 0
    assert said_at(thinned, 105, "FAIL [p#1]: refused") == 99
    assert said_at(thinned, 105, "FAIL: ours", "coordinator.office") == 0
    assert said_at(thinned, 105, "FAIL: ours", "coordinator.office") == 0, "only the client is kept quiet"


def test_the_streams_client_is_kept_quiet_by_what_it_says_whatever_the_values_are() -> None:
    thinned = logs.Thinned()

    def said(second: float, text: str, value: object) -> bool:
        name = "aiokafka.consumer.fetcher"
        return thinned.filter(logging.makeLogRecord({"name": name, "msg": text, "args": (value,), "created": second}))

    assert said(100, "Failed fetch messages from %s", 1)
    assert not said(101, "Failed fetch messages from %s", 2)
    assert said(101, "Unexpected error while fetching data: %s", "KafkaStorageError")
    assert said(105, "Failed fetch messages from %s", 1)


def test_what_a_client_is_told_in_a_callback_is_kept_quiet_by_its_code() -> None:
    thinned = logs.Thinned()

    def said(second: float, code: str) -> bool:
        line = {"name": "workers.consumer", "msg": "Kafka says: x", "action": "client_error", "code": code}
        return thinned.filter(logging.makeLogRecord({**line, "created": second}))

    assert [said(100 + number, "_TRANSPORT") for number in range(6)] == [True, False, False, False, False, True]
    assert said(101, "_ALL_BROKERS_DOWN")
