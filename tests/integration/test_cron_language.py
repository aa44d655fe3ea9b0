"""SQL and Python read the same cron language: one file of vectors, then expressions by the thousand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from cronstream.schedule import Schedule, ScheduleError, compile_cron, schedule_of
from cronstream.schedule.cron import hash_key
from cronstream.schedule.zones import zone_of
from tests.support import expressions

Conn = psycopg.Connection[tuple[Any, ...]]
Verdict = tuple[str, str, str] | None
"""None, or what is wrong: field, what is allowed, remedy"""

CASES = Path(__file__).parents[1] / "cases"
BATCH = 500
VERDICTS = """
    SELECT (p).field, (p).allowed, (p).remedy, upper(cron COLLATE "C") ~ cronstream.plain_cron()
    FROM unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY AS given (cron, tenant, name, place)
    CROSS JOIN LATERAL cronstream.cron_problem(cron, tenant, name) AS p ORDER BY place
"""


def cases(file: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CASES / file).read_text("utf-8").splitlines()]


def vectors() -> list[Any]:
    """(expression, valid) for everything that is a cron expression's text."""
    found = [(c["id"], c["expr"], c["valid"]) for c in cases("language.jsonl")]
    found += [(c["id"], c["expr"], True) for c in cases("schedule_cases_given.jsonl") if c.get("kind") != "interval"]
    found += [
        # a bad zone is no matter of the expression; a row has the name that H needs
        (c["id"], c["expr"], c["id"].startswith("tz-") or c["id"] == "junk-hash-h")
        for c in cases("invalid_given.jsonl")
        if isinstance(c["expr"], str) and c.get("kind") != "interval"
    ]
    return [pytest.param(expr, valid, id=name) for name, expr, valid in found]


@pytest.fixture
def conn(database: str) -> Iterator[Conn]:
    """A transaction that is rolled back."""
    with psycopg.connect(database) as conn:
        yield conn
        conn.rollback()


def python_says(text: str, tenant: str, name: str) -> Verdict:
    try:
        compile_cron(text, "UTC", hash_key=hash_key(tenant, name))
    except ScheduleError as error:
        return error.field, error.allowed, error.hint
    return None


def agree(conn: Conn, jobs: list[tuple[str, str, str]]) -> int:
    """Both verdicts on each (expression, tenant, name) are the same; how many are valid."""
    valid = 0
    for start in range(0, len(jobs), BATCH):
        batch = jobs[start : start + BATCH]
        rows = conn.execute(VERDICTS, [list(column) for column in zip(*batch, strict=True)]).fetchall()
        for job, (*problem, plain) in zip(batch, rows, strict=True):
            in_sql = None if problem[0] is None else tuple(problem)
            in_python = python_says(*job)
            assert in_sql == in_python, job
            assert not (plain and in_python), f"{job}: plain_cron() goes beyond the language"
            valid += in_python is None
    return valid


def insert(conn: Conn, cron: str, name: str = "job") -> None:
    conn.execute("INSERT INTO cronstream.job_definitions (name, handler, cron) VALUES (%s, 'log', %s)", (name, cron))


@pytest.mark.parametrize(("cron", "valid"), vectors())
def test_an_insert_is_accepted_or_refused_as_python_does(conn: Conn, cron: str, valid: bool) -> None:
    problem = python_says(cron, "default", "job")
    assert (problem is None) == valid
    if "\0" in cron:
        with pytest.raises(psycopg.DataError):  # PostgreSQL's text has no zero byte
            insert(conn, cron)
        return
    if problem is None:
        insert(conn, cron)
        return
    with pytest.raises(
        psycopg.errors.InvalidParameterValue, match=r"cron (is not a cron expression|never fires)"
    ) as refusal:
        insert(conn, cron)
    diag = refusal.value.diag
    assert (diag.schema_name, diag.table_name, diag.column_name) == ("cronstream", "job_definitions", "cron")
    assert str(diag.message_detail).startswith("cron is ")
    assert problem[1] in str(diag.message_hint)
    assert problem[2] in str(diag.message_hint)


def define(conn: Conn, case: dict[str, Any]) -> None:
    """A given case as a row. `@every 90s` is notation of the case files alone: a row has the interval."""
    column, given = ("every", case["expr"][7:]) if case.get("kind") == "interval" else ("cron", case["expr"])
    conn.execute(
        f"INSERT INTO cronstream.job_definitions (name, handler, {column}, anchor, timezone)"  # type: ignore[arg-type]
        f" VALUES ('job', 'log', %s{'::interval' if column == 'every' else ''}, %s::timestamptz, %s)",
        (given, case.get("anchor"), case["tz"]),
    )


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in cases("schedule_cases_given.jsonl")])
def test_every_given_valid_definition_is_accepted_by_sql_in_its_zone(conn: Conn, case: dict[str, Any]) -> None:
    define(conn, case)


# H needs a tenant and a name, which a preview may lack and a row never does: valid here, as vectors() has it.
INVALID = [case for case in cases("invalid_given.jsonl") if case["id"] != "junk-hash-h"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in INVALID])
def test_every_given_invalid_definition_is_refused_by_sql(conn: Conn, case: dict[str, Any]) -> None:
    with pytest.raises(psycopg.DatabaseError) as refusal:
        define(conn, case)
    if case["id"].startswith("tz-") and isinstance(case["tz"], str):
        assert refusal.value.diag.column_name == "timezone"


@pytest.mark.parametrize(
    ("cron", "message", "detail", "hint"),
    [
        ("*/90 * * * *", "its minute is not allowed", "cron is '*/90 * * * *'. It has '*/90' as minute.",
         "Allowed as minute: a step from 1 to 60; a step counts values of its own field; "
         "a fixed distance goes into every, such as 'PT90M', in place of cron."),
        ("0 1,25 * * *", "its hour", "It has '25' as hour.", "Allowed as hour: 0-23,"),
        ("0 0 20-5 * *", "its day of month", "It has '20-5' as day of month.", 'write "20-31,1-5"'),
        ("0 0 * * mo", "its day of week", "It has 'mo' as day of week.", "0-7, SUN-SAT"),
        ("0\u00a00 * * *", "is not a cron", "cron is '0?0 * * *'. It has U+00A0.", "ASCII letters"),
        ("* * * *", "is not a cron", "cron is '* * * *'.", "this has 4 fields"),
        ("0 0 30 2 *", "cron never fires", "cron is '0 0 30 2 *'.", "never meet"),
        ("@every 5m", "is not a cron", "cron is '@every 5m'.", "an interval goes into every"),
    ],
)  # fmt: skip
def test_a_refusal_quotes_the_part_and_says_what_is_allowed(
    conn: Conn, cron: str, message: str, detail: str, hint: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refusal:
        insert(conn, cron)
    diag = refusal.value.diag
    assert message in str(diag.message_primary)
    assert detail in str(diag.message_detail)
    assert hint in str(diag.message_hint)


def test_a_hash_that_never_meets_a_date_is_refused_for_that_job_alone(conn: Conn) -> None:
    """Which month H picks depends on tenant and name; so does whether a 31st is in it."""
    names = [f"job {n}" for n in range(40)]
    assert 0 < agree(conn, [("0 0 31 H *", "tenant", name) for name in names]) < 40
    insert(conn, "0 0 31 H(4-5) *", next(n for n in names if python_says("0 0 31 H(4-5) *", "default", n) is None))
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="cron never fires"):
        insert(conn, "0 0 31 H(4-5) *", next(n for n in names if python_says("0 0 31 H(4-5) *", "default", n)))


def generated(seed: int, count: int) -> list[tuple[str, str, str]]:
    chance = Random(seed)
    return [(expressions.anything(chance), f"tenant ü{chance.randrange(9)}", f"{n}") for n in range(count)]


def test_twenty_thousand_expressions_get_the_same_verdict_in_both(conn: Conn) -> None:
    valid = agree(conn, generated(20261129, 20_000))
    assert 5_000 < valid < 15_000


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_a_million_expressions_get_the_same_verdict_in_both(conn: Conn, seed: int) -> None:
    agree(conn, generated(seed, 50_000))


def test_no_expression_takes_long(conn: Conn) -> None:
    """The costly ones, by Postgres' own clock: long lists, long noise, dates that never meet."""
    costly = [
        ",".join(["1"] * 496) + " * * * *",
        ",".join(["1-2"] * 248) + " * * * *",
        ",".join(["SUN-SAT/7"] * 99) + " * * *",
        "0 0 * * " + ",".join(["SUN#5"] * 165),
        "0 0 ?  * " + ",".join(["MON#5"] * 164),
        "0 0 */31 * " + ",".join(["MON#2"] * 164),
        "0 0 */30 2 MON#2,TUE#3,5L",
        "0 0 " + ",".join(["31W"] * 240) + " 2 *",
        "0 0 31 4,6,9,11 *",
        "H(" * 330,
        "1-" * 500,
        "*/" * 500,
        "(" * 1000,
        " " * 1000,
        "9" * 1000,
        "x" * 1_000_000,
        "\uff11" * 1000,
    ]
    agree(conn, [(cron, "default", "job") for cron in costly])
    conn.execute(
        "CREATE TEMP TABLE costly AS SELECT * FROM unnest(%s::text[]) WITH ORDINALITY AS c (cron, n)", (costly,)
    )
    plan = (
        "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON)"
        " SELECT cronstream.cron_problem(cron, 'default', 'job') FROM costly WHERE n = %s"
    )
    for n, cron in enumerate(costly, 1):
        times = [conn.execute(plan, (n,)).fetchone() for _ in range(5)]
        best = min(row[0][0]["Execution Time"] for row in times if row is not None)
        assert best < 10, cron[:60]


ZONES = ("UTC", "America/New_York", "Pacific/Apia", "Asia/Kathmandu", "Africa/Casablanca", "Australia/Lord_Howe", "CET")
WITHIN = """
    SELECT cronstream.cron_count(cron, 't', 'n', low, high, most)
    FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[]) WITH ORDINALITY
         AS given (cron, timezone, first, last, most, place)
    CROSS JOIN LATERAL cronstream.wall_range(timezone, cronstream.instant(first), cronstream.instant(last))
    ORDER BY place
"""


def counted(schedule: Schedule, first_us: int, last_us: int, most: int) -> int:
    """The times from first to last, but no more than most + 1."""
    count, at_us = 0, schedule.next_after(first_us - 1)
    while at_us is not None and at_us <= last_us and count <= most:
        count, at_us = count + 1, schedule.next_after(at_us)
    return count


def clock_changes(zone: str, first_us: int, last_us: int) -> bool:
    """Whether a zone's clocks are set in a range."""
    first, last = first_us // 1_000_000 - 1, last_us // 1_000_000 + 1
    starts, _ = zone_of(zone).reach(last)
    return any(first <= start <= last for start in starts)


def test_sql_counts_the_times_of_a_range_as_python_does_where_no_clock_changes(conn: Conn) -> None:
    chance = Random(5)
    begins_us = 1_262_304_000_000_000  # 2010
    asked: list[tuple[str, str, int, int, int]] = []
    while len(asked) < 3000:
        cron = expressions.anything(chance)
        if python_says(cron, "t", "n") is None:
            first_us = begins_us + chance.randrange(4 * 365 * 86_400_000_000)
            span_us = round(86_400_000_000 * 10 ** chance.uniform(-3, 3.5))
            asked.append((cron, chance.choice(ZONES), first_us, first_us + span_us, chance.choice((0, 3, 100))))
    found = [row[0] for row in conn.execute(WITHIN, [list(column) for column in zip(*asked, strict=True)])]
    alike = nothing = 0
    for case, in_sql in zip(asked, found, strict=True):
        cron, zone, first_us, last_us, most = case
        exact = counted(schedule_of(cron=cron, timezone=zone, tenant="t", name="n"), first_us, last_us, most)
        nothing += in_sql == 0
        assert in_sql > 0 or exact == 0, f"{case}: what is none is none"
        if not clock_changes(zone, first_us, last_us):
            assert min(in_sql, most + 1) == exact, case
            alike += 1
    assert alike > 1500
    assert nothing > 500


@pytest.mark.parametrize(
    ("cron", "zone", "begins", "ends", "refused"),
    [
        ("* * * * *", "UTC", "2026-01-01T00:00Z", "2026-03-11T10:39Z", False),  # 100,000 of them
        ("* * * * *", "UTC", "2026-01-01T00:00Z", "2026-03-11T10:40Z", True),
        ("* * * * * *", "America/New_York", "2026-01-01Z", "2026-01-02Z", False),
        ("* * * * * *", "America/New_York", "2026-01-01Z", "2026-01-05Z", True),
        ("@daily", "UTC", "0002-01-01Z", "2026-01-01Z", True),
        ("0 0 29 2 *", "UTC", "0002-01-01Z", "2026-01-01Z", False),
    ],
)
def test_a_backfill_of_more_runs_than_a_request_may_have_is_refused_as_it_is_asked_for(
    conn: Conn, cron: str, zone: str, begins: str, ends: str, refused: bool
) -> None:
    conn.execute(
        "INSERT INTO cronstream.job_definitions (name, handler, cron, timezone) VALUES ('job', 'log', %s, %s)",
        (cron, zone),
    )
    ask = "SELECT cronstream.backfill('default', 'job', %s, %s)"
    if not refused:
        conn.execute(ask, (begins, ends))
        return
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="leaves more than 100000 runs of cron") as refusal:
        conn.execute(ask, (begins, ends))
    assert refusal.value.diag.message_hint == "Ask for a shorter range, and for the rest by further backfills."
