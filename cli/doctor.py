"""``cronstream doctor``: is this node fit for this installation, and is the installation set as it must be?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.metadata import version
from typing import Any

import click
import psycopg
from psycopg.rows import dict_row

from cli import checks, zone_comparison
from cli.checks import PROBLEM, Check
from cli.environment import postgres, settings
from cli.errors import explain, one_line
from cli.output import json_option, print_json, say
from cli.probes import PROBE_SECONDS
from cli.topics import admin, partition_counts
from connectors.config import slot_name
from connectors.seen import Slot
from coordinator.rules import rule_of, work_of_row
from cronstream.clock import SECOND, SystemClock
from cronstream.schedule import TZDATA_VERSION
from cronstream.schedule.zones import zone_names, zone_of
from cronstream.settings import PROCESSES, CaptureSettings, CoordinatorSettings, SettingsError
from sql.blockers import naming_blockers
from sql.migrate import SchemaError, load_migrations, schema_version_check
from sql.queries import load

queries = load("doctor")
Connection = psycopg.Connection[Any]

# About 500,000 definitions; of more, as many pages of the table, taken by chance.
_PAGES = 20_000
_DEFINITIONS = 10_000
_UNREADABLE_SHOWN = 20
_CLOCK_READINGS = 5


@click.command(short_help="Check this node and its installation.")
@json_option
def doctor(as_json: bool) -> None:
    """Check this node and its installation: what is wrong, and what to do about it.

    \b
    Each check is ok, a warning or a problem:
    the settings that processes would read here, time zone data (this node's, the leaders',
    PostgreSQL's own), the schema, the settings and clocks of Postgres, capture's replication slot,
    the topics, definitions that cannot be read.

    Exit status 1 when there is a problem. What cannot be looked at is a problem and says why.
    """
    capture = settings(CaptureSettings)
    tolerance_us = settings(CoordinatorSettings).clock_tolerance_seconds * SECOND
    with ThreadPoolExecutor(2) as pool:
        in_kafka = pool.submit(lambda: list(_guarded("topics", lambda: [_topics(capture)])))
        found = [checks.process_settings(_refused()), *_postgres(capture, tolerance_us), *in_kafka.result()]
    problems = [check.name for check in found if check.state == PROBLEM]
    if as_json:
        print_json({"ok": not problems, "checks": [_as_json(check) for check in found]})
    else:
        for check in found:
            _show(check)
    if problems:
        say(f"cronstream: problems: {', '.join(problems)}", err=True)
        sys.exit(1)


def _refused() -> list[str]:
    """What the installation's processes would say of the settings that are here."""
    problems: dict[str, None] = {}
    for model in PROCESSES.values():
        try:
            settings(model)
        except SettingsError as error:
            problems[str(error)] = None
    return list(problems)


def _postgres(capture: CaptureSettings, tolerance_us: float) -> Iterable[Check]:
    try:
        with postgres() as connection:
            looks: dict[str, Callable[[], Iterable[Check]]] = {
                "postgres": lambda: _settings(connection),
                "schema": lambda: [_schema(connection)],
                "zone data": lambda: _zone_data(connection),
                "zones in postgres": lambda: [_zones(connection)],
                "clocks": lambda: [_clocks(connection, tolerance_us)],
                "replication slot": lambda: [_slot(connection, slot_name(capture))],
                "definitions": lambda: [_definitions(connection)],
            }
            return [
                check for name, look in looks.items() for check in _guarded(name, partial(_named, connection, look))
            ]
    except psycopg.Error as error:
        here = f"{TZDATA_VERSION} (PyPI's tzdata {version('tzdata')}) on this node; the others' is not known"
        return [
            Check("zone data", checks.OK, here),
            Check("postgres", PROBLEM, _reason(error), "nothing else was looked at there: see that Postgres runs"),
        ]


def _named(connection: Connection, look: Callable[[], Iterable[Check]]) -> Iterable[Check]:
    """The checks. Raises Blocked, which names who holds a lock that the look needs."""
    with naming_blockers(connection):
        return list(look())


def _guarded(name: str, look: Callable[[], Iterable[Check]]) -> Iterable[Check]:
    """The checks, or one that says why there are none."""
    try:
        return list(look())
    except Exception as error:
        if explain(error) is None:
            raise
        return [Check(name, PROBLEM, f"cannot be looked at: {_reason(error)}", "mend this, then ask again")]


def _reason(error: Exception) -> str:
    failure = explain(error)
    return one_line(failure.message if failure is not None else repr(error))


def _settings(connection: Connection) -> list[Check]:
    with connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(queries["server_settings"]).fetchone()
    assert row is not None
    return checks.server_settings(row)


def _schema(connection: Connection) -> Check:
    try:
        schema_version_check(connection)
    except SchemaError as error:
        says, _, remedy = one_line(error).replace("python -m sql migrate", "cronstream setup").rpartition(": ")
        return Check("schema", PROBLEM, says or remedy, remedy)
    return Check("schema", checks.OK, f"version {len(load_migrations())}, as this version needs it")


def _zone_data(connection: Connection) -> list[Check]:
    epoch = connection.execute(load("coordinator")["read_epoch"]).fetchone()
    held, planned = (None, None) if epoch is None else epoch[3:5]
    row = connection.execute(queries["zone_keys"]).fetchone()
    assert row is not None
    return [
        checks.zone_data(TZDATA_VERSION, version("tzdata"), held, planned),
        checks.zone_keys(zone_names(), row[0]),
    ]


def _zones(connection: Connection) -> Check:
    percent = _percent(connection)
    named = [zone for (zone,) in connection.execute(queries["zones_in_use"], {"percent": percent})]
    now = SystemClock().wall_us() // SECOND
    known = [zone for zone in named if zone in zone_names()]
    ask = partial(_offsets, connection)
    differences = []
    for name in known:
        zone = zone_of(name)
        try:
            connection.execute(queries["use_zone"], {"zone": name})
        except psycopg.errors.InvalidParameterValue:
            differences.append(zone_comparison.Difference(name, now, zone.offset_at(now), None))
            continue
        seconds = zone_comparison.samples(zone, now)
        one = zone_comparison.first_difference(zone, seconds, ask(seconds), ask)
        if one is not None:
            differences.append(one)
    connection.execute(queries["use_zone"], {"zone": "UTC"})
    return zone_comparison.judge(known, differences, percent < 100)


def _offsets(connection: Connection, seconds: Iterable[int]) -> list[int]:
    row = connection.execute(queries["offsets"], {"seconds": list(seconds)}).fetchone()
    assert row is not None
    offsets: list[int] = row[0]
    return offsets


def _clocks(connection: Connection, tolerance_us: float) -> Check:
    clock, readings = SystemClock(), []
    for _ in range(_CLOCK_READINGS):
        sent_us = clock.wall_us()
        row = connection.execute(queries["clock"]).fetchone()
        answered_us = clock.wall_us()
        assert row is not None
        readings.append((answered_us - sent_us, checks.clocks_apart(sent_us, row[0], answered_us)))
    within_us, apart_us = min(readings)  # the quickest answer says most
    return checks.clocks(apart_us, within_us, tolerance_us)


def _slot(connection: Connection, name: str) -> Check:
    row = connection.execute(load("capture")["slot"], {"slot": name}).fetchone()
    return checks.slot(name, None if row is None else Slot(*row))


def _definitions(connection: Connection) -> Check:
    with connection.cursor(row_factory=dict_row) as cursor:
        parameters = {"percent": _percent(connection), "most": _DEFINITIONS + 1}
        rows = cursor.execute(queries["sample_definitions"], parameters).fetchall()
    unreadable = []
    for row in rows[:_DEFINITIONS]:
        try:
            # A paused job is read as well: it is resumed some day.
            rule_of({**row, "enabled": True}, row["stored_anchor_us"])
            work_of_row(row)
        except Exception as error:
            job = {"job_id": row["job_id"], "tenant": row["tenant"], "name": row["name"]}
            unreadable.append({**job, "error": one_line(error)})
    sampled = len(rows) > _DEFINITIONS or parameters["percent"] < 100
    return checks.definitions(min(len(rows), _DEFINITIONS), sampled, unreadable)


def _percent(connection: Connection) -> float:
    row = connection.execute(queries["sample_percent"], {"pages": _PAGES}).fetchone()
    assert row is not None
    return float(row[0])


def _topics(capture: CaptureSettings) -> Check:
    counts = partition_counts(admin(capture), PROBE_SECONDS)
    return checks.topics(capture.topics.specs(capture.partitions), counts)


def _as_json(check: Check) -> dict[str, Any]:
    return {
        "name": check.name,
        "state": check.state,
        "says": check.says,
        "remedy": check.remedy,
        "details": check.details,
    }


def _show(check: Check) -> None:
    state = check.state if check.state == checks.OK else check.state.upper()
    say(f"{state:<9}{check.name:<24}{check.says}")
    for detail in check.details[:_UNREADABLE_SHOWN] if check.name == "definitions" else ():
        say(f"{'':<33}job {detail['job_id']} ({detail['tenant']}/{detail['name']}): {detail['error']}")
    if check.remedy is not None:
        say(f"{'':<33}remedy: {check.remedy}")
