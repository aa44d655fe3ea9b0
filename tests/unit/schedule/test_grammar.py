"""The language at its edges: what each form means, and what a refusal tells."""

from __future__ import annotations

import pytest

from cronstream.schedule import ScheduleError, compile_cron
from cronstream.schedule.grammar import MACROS, MAX_CHARS, parse

SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY = range(6)


def values(text: str, field: int) -> list[int]:
    mask = parse(text).fields[field].mask
    return [n for n in range(60) if mask >> n & 1]


@pytest.mark.parametrize(
    ("weekday", "expected"),
    [
        ("0", [0]),
        ("7", [0]),
        ("SUN", [0]),
        ("sat", [6]),
        ("0-7", [0, 1, 2, 3, 4, 5, 6]),
        ("1-7", [0, 1, 2, 3, 4, 5, 6]),
        ("FRI-MON", [0, 1, 5, 6]),
        ("6-1", [0, 1, 6]),
        ("7-2", [0, 1, 2]),
        ("5-7", [0, 5, 6]),
        ("SUN-TUE", [0, 1, 2]),
        ("MON-SUN", [0, 1, 2, 3, 4, 5, 6]),
        ("7-0", [0]),
        ("3-3", [3]),
        ("FRI-MON/2", [0, 5]),
        ("1/2", [1, 3, 5]),
        ("7/2", [0, 2, 4, 6]),
        ("*/7", [0]),
        ("0-7/7", [0]),
        ("1-7/2", [0, 1, 3, 5]),
        ("?", [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_weekdays(weekday: str, expected: list[int]) -> None:
    assert values(f"0 0 * * {weekday}", WEEKDAY) == expected


def test_steps_and_ranges_of_the_other_fields() -> None:
    assert values("5/15 * * * *", MINUTE) == [5, 20, 35, 50]
    assert values("5-5 * * * *", MINUTE) == [5]
    assert values("0 2-23/24 * * *", HOUR) == [2]
    assert values("0 0 20/5 * *", DAY) == [20, 25, 30]
    assert values("0 0 1 JAN-dec/3 *", MONTH) == [1, 4, 7, 10]
    assert values("0,30 * * * * *", SECOND) == [0, 30]
    assert values("* * * * *", SECOND) == [0]


@pytest.mark.parametrize("macro", sorted(MACROS))
def test_macros_in_any_case_and_between_blanks(macro: str) -> None:
    assert parse(f" \t{macro.lower()} ").fields == parse(MACROS[macro]).fields


@pytest.mark.parametrize(
    ("text", "field", "part", "remedy"),
    [
        ("*/90 * * * *", "minute", '"*/90"', "every"),
        ("*/120 * * * *", "minute", '"*/120"', "PT120M"),
        ("0 */25 * * *", "hour", '"*/25"', "every"),
        ("0 0 * * */8", "day of week", '"*/8"', "own field"),
        ("0 0 20-5 * *", "day of month", '"20-5"', "20-31,1-5"),
        ("0 0 * * l", "day of week", '"l"', "FRIL"),
        ("1,,2 * * * *", "minute", '"1,,2"', "comma"),
        ("0 0 * * mo", "day of week", '"mo"', ""),
        ("? * * * *", "minute", '"?"', "day fields"),
        ("@every 5m", "cron", '"@every 5m"', "every"),
        ("0 0 30 2 *", "cron", '"0 0 30 2 *"', "never"),
        ("0 0 12 * * ? 2026", "cron", '"0 0 12 * * ? 2026"', "year"),
        ("005 * * * *", "minute", '"005"', ""),
        ("H * * * *", "minute", '"H"', "tenant and name"),
        ("H(5-70) * * * *", "minute", '"H(5-70)"', ""),
        ("H(9-5) * * * *", "minute", '"H(9-5)"', ""),
        ("H/0 * * * *", "minute", '"H/0"', ""),
        ("0 0 * * FRI#6", "day of week", '"FRI#6"', ""),
        ("0 0 L-3 * *", "day of month", '"L-3"', ""),
        ("0 0 0W * *", "day of month", '"0W"', ""),
        ("\ud800 * * * *", "cron", '"\\ud800"', ""),
    ],
)
def test_a_refusal_names_field_part_and_remedy(text: str, field: str, part: str, remedy: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        compile_cron(text, "UTC")
    error = caught.value
    assert (error.field, error.part) == (field, part)
    assert remedy in error.hint
    assert part in str(error)
    assert error.field in str(error)
    assert error.allowed in str(error)


def test_long_texts_are_refused_before_they_are_read_and_quoted_in_part() -> None:
    with pytest.raises(ScheduleError, match="at most") as caught:
        compile_cron("1," * 100_000 + "1 * * * *", "UTC")
    assert len(str(caught.value)) < 120
    longest = ",".join(["1"] * ((MAX_CHARS - 8) // 2)) + " * * * *"
    compile_cron(longest, "UTC")


def test_star_decides_how_day_fields_join() -> None:
    assert not parse("0 0 13 * 5").fields[DAY].star
    assert parse("0 0 */2 * 5").fields[DAY].star
    assert parse("0 0 *,5 * 5").fields[DAY].star
    assert not parse("0 0 5,* * 5").fields[DAY].star
    assert parse("0 0 ? * 5").fields[DAY].star
    assert parse("0 0 13 * 5").notices[0].startswith("day of month")
    assert parse("0 0 */2 * 5").notices == ()
    assert parse("*/45 * * * *").notices == ('minute: "*/45" goes from 45 to 0, a step of 15: 45 does not divide 60',)
    assert parse("0 */5 1 */5 *").notices == (
        'hour: "*/5" goes from 20 to 0, a step of 4: 5 does not divide 24',
        'month: "*/5" goes from 11 to 1, a step of 2: 5 does not divide 12',
    )
    assert parse("*/15 */6 */2 */3 */2").notices == ()
    assert parse("*/60 * * * *").notices == ('minute: "*/60" matches 0 alone, like "0"',)


def test_one_meaning_is_one_object() -> None:
    workdays = compile_cron("0 9 * * 1-5", "Europe/Berlin")
    assert compile_cron("0 9 * * 1-5", "Europe/Berlin") is workdays
    assert compile_cron("0 0 9 ? * mon-fri", "Europe/Berlin", dst_gap="shift", dst_overlap="first") is workdays
    assert compile_cron("0 9 * * 1-5", "Europe/Berlin", hash_key="a\0b") is workdays
    assert compile_cron("0 9 * * 1-5", "Europe/Paris") is not workdays
    assert compile_cron("0 9 * * 1-5", "Europe/Berlin", dst_gap="skip") is not workdays


@pytest.mark.parametrize("rule", [{"dst_gap": "later"}, {"dst_overlap": None}, {"dst_gap": ["auto"]}])
def test_unknown_dst_rules_are_refused(rule: dict) -> None:
    with pytest.raises(ScheduleError, match="auto"):
        compile_cron("0 9 * * *", "UTC", **rule)


def test_a_zone_is_suggested_for_a_near_miss() -> None:
    for text, near in (("europe/berlin", "Europe/Berlin"), ("Berlin", "Europe/Berlin"), (" UTC ", "UTC")):
        with pytest.raises(ScheduleError) as caught:
            compile_cron("0 9 * * *", text)
        assert near in caught.value.hint
