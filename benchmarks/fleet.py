"""Jobs as the real fleet has them: demo/data/k8s_periodics.csv, moved or sped up to what a benchmark needs.

A third of that fleet is cron, the rest intervals, most of twelve hours and more.

- *aligned*: every job keeps its kind; its cron fields and its anchor are moved so that it is due at the
  instant asked for. That is a herd.
- *spread*: intervals keep their proportions and are sped up together until the whole fires at the rate asked
  for, at phases drawn evenly; the cron jobs fire every N minutes, spread over all the whole seconds of these.

Rows are written as the tables' owner with the user triggers off, definitions and schedules at once: a
million validated inserts and their planning are measured elsewhere, not paid for in every set-up.
"""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from cronstream.schedule import TZDATA_VERSION, schedule_of

SOURCE = Path(__file__).parents[1] / "demo" / "data" / "k8s_periodics.csv"
PAYLOAD_BYTES = 256
_PERIODS = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30)  # minutes that divide an hour
_HOURS = {"h": 3600, "m": 60, "s": 1}


@dataclass(frozen=True, slots=True)
class Shape:
    """One job's schedule: cron, or an interval in seconds."""

    cron: str | None
    seconds: int | None


def shapes() -> list[Shape]:
    """The fleet's schedules, one a job."""
    with SOURCE.open() as rows:
        return [
            Shape(row["cron"] or None, _duration(row["interval"]) if row["interval"] else None)
            for row in csv.DictReader(rows)
        ]


def _duration(text: str) -> int:
    return sum(int(number) * _HOURS[unit] for number, unit in re.findall(r"(\d+)([hms])", text))


def moved(cron: str, at_us: int) -> str:
    """A six-field form of the expression that fires at that instant: fields that exclude it are set to it."""
    at = datetime.fromtimestamp(at_us / 1e6, UTC)
    fields = cron.split()
    if len(fields) != 5:
        fields = ["0", "*", "*", "*", "*"]
    values = (at.minute, at.hour, at.day, at.month, at.isoweekday() % 7)
    if fields[2] != "*" and fields[4] != "*":
        fields[2] = "*"
    for index, value in enumerate(values):
        probe = ["*"] * 5
        probe[index] = fields[index]
        if not _fires(" ".join([str(at.second), *probe]), at_us):
            fields[index] = str(value)
    text = " ".join([str(at.second), *fields])
    assert _fires(text, at_us), text
    return text


def _fires(cron: str, at_us: int) -> bool:
    return schedule_of(cron=cron).next_after(at_us - 1) == at_us


def insert_aligned(connection: psycopg.Connection[Any], count: int, instants_us: list[int]) -> None:
    """``count`` jobs, due at the instants in turn."""
    rows = [
        (turn, number, moved(shape.cron, at_us) if shape.cron else None, _micros(shape), at_us)
        for turn, at_us in enumerate(instants_us)
        for number, shape in enumerate(shapes())
    ]
    _insert(connection, count, rows, turns=len(instants_us), number=len(shapes()), of_turn="AND s.turn = t.turn")


def insert_spread(
    connection: psycopg.Connection[Any], count: int, per_second: float, start_us: int, *, schedules: bool = True
) -> float:
    """``count`` jobs that fire so often together from ``start_us`` on; returns how much they were sped up."""
    wanted = count / per_second  # seconds between a job's fires, on average over rates
    minutes = min(_PERIODS, key=lambda period: abs(period - wanted / 60))
    turns = minutes * 60  # a cron job of each shape at each of these seconds
    fleet = _sample(shapes(), -(-count // turns))
    crons = sum(shape.cron is not None for shape in fleet)
    left = len(fleet) / wanted - crons / turns
    factor = sum(1 / shape.seconds for shape in fleet if shape.seconds) / left
    rows = [
        (0, number, None, None, start_us)
        if shape.seconds is None
        else (0, number, None, max(1_000_000, int(shape.seconds * factor * 1e6)), start_us)
        for number, shape in enumerate(fleet)
    ]
    due = "s.due_us + coalesce((s.every_us * random())::bigint, 1000000 * t.turn)"
    at = f"({start_us // 1_000_000} + t.turn)"
    fields = f"format('%%s %%s-59/{minutes} * * * *', {at} %% 60, {at} / 60 %% {minutes})"
    cron = f"CASE WHEN s.every_us IS NULL THEN {fields} END"
    _insert(connection, count, rows, turns=turns, number=len(fleet), cron=cron, due=due, schedules=schedules)
    return 1 / factor


def _sample(fleet: list[Shape], most: int) -> list[Shape]:
    """All of them, or as many as there are jobs for, drawn evenly."""
    return fleet if len(fleet) <= most else Random(1).sample(fleet, most)


def insert_millions(connection: psycopg.Connection[Any], count: int, per_second: float) -> tuple[int, float]:
    """As ``insert_spread``, for an empty database: the indexes are made after the rows, and what is due
    starts two minutes after the definitions are there. Returns that instant and how much the fleet was sped up.
    """
    definitions, schedules = "cronstream.job_definitions", "cronstream.schedules"
    connection.execute(
        "ALTER TABLE cronstream.job_definitions DROP CONSTRAINT one_job_per_tenant_and_name_or_call_cronstream_upsert"
    )
    anchor_us = int(time.time()) * 1_000_000
    sped_up = insert_spread(connection, count, per_second, anchor_us, schedules=False)
    connection.execute("SET maintenance_work_mem = '1GB'")
    connection.execute("ALTER TABLE cronstream.job_definitions ADD UNIQUE (tenant, name)")
    connection.execute(f"VACUUM (ANALYZE) {definitions}")
    connection.execute("DROP INDEX cronstream.schedules_next_run_at")
    start_us = int(time.time() + 60 + count / 80_000) * 1_000_000
    # A cron job is "S M-59/N * * * *" here: due at S + 60 M seconds and every N minutes from there.
    connection.execute(
        """INSERT INTO cronstream.schedules (job_id, next_run_at, version, revision, anchor, tzdata)
           SELECT job_id,
                  CASE WHEN cronstream.us(anchor) >= %(start)s THEN anchor
                  WHEN anchor IS NOT NULL THEN cronstream.instant(cronstream.us(anchor)
                      + ((%(start)s - cronstream.us(anchor)) / cronstream.us(every) + 1) * cronstream.us(every))
                  ELSE cronstream.instant(%(start)s + 1000000 * ((p.base - %(start)s / 1000000) %% p.period + p.period)
                      %% (1000000 * p.period)) END,
                  1, job_id, anchor, %(tzdata)s
           FROM cronstream.job_definitions,
                LATERAL (SELECT split_part(cron, ' ', 1)::bigint
                                + 60 * split_part(split_part(cron, ' ', 2), '-', 1)::bigint AS base,
                                60 * split_part(split_part(cron, ' ', 2), '/', 2)::bigint AS period) p
           ORDER BY job_id""",
        {"start": start_us, "tzdata": TZDATA_VERSION},
    )
    connection.execute(
        "CREATE INDEX schedules_next_run_at ON cronstream.schedules (next_run_at, job_id) WHERE next_run_at IS NOT NULL"
    )
    connection.execute(f"VACUUM (ANALYZE) {schedules}")
    return start_us, sped_up


def insert_rows(connection: psycopg.Connection[Any], first: int, count: int, every: str, tenant: str = "edits") -> None:
    """Jobs through the front door, triggers and all: one INSERT ... SELECT."""
    connection.execute(
        """INSERT INTO cronstream.job_definitions (tenant, name, every, handler, payload)
           SELECT %s, 'job-' || i, %s::interval, 'log', jsonb_build_object('pad', rpad(md5(i::text), %s, 'x'))
           FROM generate_series(%s::bigint, %s::bigint) i""",
        [tenant, every, PAYLOAD_BYTES - 11, first, first + count - 1],
    )


def make_failing(connection: psycopg.Connection[Any], at_us: int, url: str, *, backoff_seconds: int) -> None:
    """What is due at that instant calls the address instead, and is tried twice; to be done before it is loaded."""
    connection.execute("ALTER TABLE cronstream.job_definitions DISABLE TRIGGER USER")
    connection.execute(
        """UPDATE cronstream.job_definitions SET handler = 'http', max_attempts = 2, jitter = 'full',
               payload = jsonb_build_object('url', %s::text, 'method', 'GET'),
               backoff_seconds = %s
           FROM cronstream.schedules s
           WHERE s.job_id = job_definitions.job_id AND s.next_run_at = cronstream.instant(%s)""",
        [url, backoff_seconds, at_us],
    )
    connection.execute("ALTER TABLE cronstream.job_definitions ENABLE TRIGGER USER")


def _micros(shape: Shape) -> int | None:
    return shape.seconds and shape.seconds * 1_000_000


def _insert(
    connection: psycopg.Connection[Any],
    count: int,
    shapes: Sequence[tuple[int, int, str | None, int | None, int]],
    *,
    turns: int,
    number: int,
    of_turn: str = "",
    cron: str = "s.cron",
    due: str = "s.due_us",
    schedules: bool = True,
) -> None:
    """Definitions and schedules, the user triggers off; 256 bytes, nine in ten distinct.

    ``shapes``: (turn, number, cron, every_us, due_us), of which jobs take ``number`` for each of the turns.
    """
    connection.execute("DROP TABLE IF EXISTS shapes")
    connection.execute("CREATE TEMP TABLE shapes (turn int, number int, cron text, every_us bigint, due_us bigint)")
    with connection.cursor().copy("COPY shapes FROM STDIN") as copy:
        for shape in shapes:
            copy.write_row(shape)
    connection.execute("ALTER TABLE cronstream.job_definitions DISABLE TRIGGER USER")
    row = connection.execute("SELECT coalesce(max(job_id), 0) FROM cronstream.job_definitions").fetchone()
    assert row is not None
    first = row[0] + 1
    with connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = off")
        connection.execute(
            f"""WITH due AS MATERIALIZED (
                SELECT i AS job_id, {cron} AS cron, s.every_us, {due} AS due_us
                FROM generate_series(%(first)s::bigint, %(last)s::bigint) i
                CROSS JOIN LATERAL (SELECT i %% %(turns)s AS turn) t
                JOIN shapes s ON s.number = (i / %(turns)s) %% %(shapes)s {of_turn}
            ), planned AS (
                INSERT INTO cronstream.schedules (job_id, next_run_at, version, revision, anchor, tzdata)
                SELECT job_id, cronstream.instant(due_us), 1, job_id,
                       CASE WHEN every_us IS NOT NULL THEN cronstream.instant(due_us) END, %(tzdata)s
                FROM due WHERE %(schedules)s
            )
            INSERT INTO cronstream.job_definitions
                (job_id, tenant, name, cron, every, anchor, handler, payload, revision)
            OVERRIDING SYSTEM VALUE
            SELECT job_id, 'fleet', 'job-' || job_id, cron, every_us * interval '1 microsecond',
                   CASE WHEN every_us IS NOT NULL THEN cronstream.instant(due_us) END, 'log',
                   jsonb_build_object('pad',
                       rpad('', %(pad)s, md5(CASE WHEN job_id %% 10 > 0 THEN job_id::text ELSE '' END))),
                   job_id
            FROM due""",
            {
                "first": first,
                "last": first + count - 1,
                "turns": turns,
                "schedules": schedules,
                "shapes": number,
                "tzdata": TZDATA_VERSION,
                "pad": PAYLOAD_BYTES - 11,
            },
        )
    connection.execute("ALTER TABLE cronstream.job_definitions ENABLE TRIGGER USER")
    connection.execute("SELECT setval('cronstream.job_definitions_job_id_seq', %s)", [first + count])
    connection.execute("SELECT setval('cronstream.revisions', %s)", [first + count])
    if schedules:
        connection.execute("VACUUM (ANALYZE) cronstream.job_definitions")
        connection.execute("VACUUM (ANALYZE) cronstream.schedules")
