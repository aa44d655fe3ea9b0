"""What the validation of a cron expression adds to a bulk INSERT.

    .venv/bin/python -m benchmarks.validator "host=… dbname=… user=…" [rows]

Makes and drops databases of its own on the server. One INSERT … SELECT of 100,000 jobs, expressions
drawn as in a real fleet: many alike, some thousands distinct. The same rows go into the schema as it
is, into one whose trigger does not look at cron, and into one whose trigger validates nothing; turn
by turn, so that a busy machine slows all alike. The median of seven is reported.
"""

from __future__ import annotations

import sys
import time
from random import Random
from statistics import median
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo

from sql.migrate import migrate

ROWS = 100_000
ROUNDS = 7
COMMON = (
    "* * * * *", "*/5 * * * *", "*/10 * * * *", "*/15 * * * *", "0 * * * *", "@hourly", "@daily", "0 0 * * *",
    "H * * * *", "H H * * *", "0 9 * * MON-FRI", "0 8 * * 1-5", "0 0 1 * *", "0 0 * * 0", "*/30 9-17 * * 1-5",
)  # fmt: skip
RARE = (
    "0 0 L * *",
    "0 6 LW * *",
    "0 9 * * MON#1",
    "0 18 * * FRIL",
    "0 0 15W * *",
    "0 0 29 2 *",
    "0 3 31 * *",
    "10-50/5 8-18 * * *",
)


def expression(chance: Random) -> str:
    """Half from a handful, most of the rest at a minute of its own, one in twenty unusual."""
    kind = chance.random()
    minute, hour = chance.randrange(60), chance.randrange(24)
    if kind < 0.5:
        return chance.choice(COMMON)
    if kind < 0.75:
        return f"{minute} {hour} * * *"
    if kind < 0.85:
        return f"{minute} {hour} * * {chance.choice(('1', 'MON-FRI', '1-5', 'SUN', '1,3,5'))}"
    if kind < 0.95:
        return f"{minute},{chance.randrange(60)} {hour} {chance.randint(1, 28)} * *"
    return chance.choice(RARE)


def without(conn: psycopg.Connection, begin: str, end: str) -> None:
    """Cut the validating trigger from one line to the next; both are in it."""
    row = conn.execute("SELECT pg_get_functiondef('cronstream.check_and_stamp'::regproc)").fetchone()
    assert row is not None
    before, _, rest = row[0].partition(begin)
    _, found, after = rest.partition(end)
    assert found
    conn.execute(before + end + after)


def insert(conn: psycopg.Connection) -> float:
    with conn.transaction(force_rollback=True):
        began = time.perf_counter()
        conn.execute("""
            INSERT INTO cronstream.job_definitions (name, cron, handler, timezone)
            SELECT 'job ' || n, cron, 'log', timezone FROM fleet""")
        return time.perf_counter() - began


def main(server: str, rows: int = ROWS) -> None:
    chance = Random(1)
    zones = ("UTC", "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata")
    fleet = [(n, expression(chance), chance.choice(zones)) for n in range(rows)]
    print(f"{rows:,} rows, {len({cron for _, cron, _ in fleet}):,} distinct expressions")
    times: dict[str, list[float]] = {"as it is": [], "cron not looked at": [], "nothing validated": []}
    connections: dict[str, psycopg.Connection] = {}
    with psycopg.connect(server, autocommit=True) as admin:
        databases = {name: f"validator_{uuid4().hex[:8]}" for name in times}
        try:
            for name, database in databases.items():
                admin.execute(f"CREATE DATABASE {database} TEMPLATE template0")
                conn = connections[name] = psycopg.connect(make_conninfo(server, dbname=database), autocommit=True)
                migrate(conn)
                conn.execute("CREATE TABLE fleet (n int, cron text, timezone text)")
                with conn.cursor().copy("COPY fleet FROM STDIN") as copy:
                    for job in fleet:
                        copy.write_row(job)
            without(
                connections["cron not looked at"], "    IF NEW.cron IS NOT NULL THEN", "    IF NEW.anchor IS NOT NULL"
            )
            without(connections["nothing validated"], "    IF num_nonnulls(", "    NEW.updated_at := now();")
            for turn in range(ROUNDS + 1):
                for name, conn in connections.items():
                    taken = insert(conn)
                    if turn:  # the first warms up
                        times[name].append(taken)
                    conn.execute("VACUUM cronstream.job_definitions, cronstream.job_changes")
        finally:
            for conn in connections.values():
                conn.close()
            for database in databases.values():
                admin.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
    medians = {name: median(taken) for name, taken in times.items()}
    for name, taken in medians.items():
        print(f"{name:20} {taken:6.2f} s  {taken / rows * 1e6:6.1f} µs a row")
    whole = medians["as it is"]
    print(f"ratio to cron not looked at  {whole / medians['cron not looked at']:.2f}")
    print(f"ratio to nothing validated   {whole / medians['nothing validated']:.2f}")


if __name__ == "__main__":
    main(sys.argv[1], *(int(text) for text in sys.argv[2:]))
