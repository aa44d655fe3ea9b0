"""``cronstream doctor`` on the real stack."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from click.testing import CliRunner

from cli import doctor
from cli.main import cli
from connectors.config import slot_name
from cronstream.clock import SECOND, SystemClock
from cronstream.schedule import TZDATA_VERSION
from cronstream.schedule.instants import parse_instant
from cronstream.schedule.zones import Zone, zone_names, zone_of
from cronstream.settings import CaptureSettings
from tests.support.installation import TestInstallation

DEFINE = "INSERT INTO cronstream.job_definitions (name, cron, timezone, handler) VALUES (%s, '0 9 * * *', %s, 'log')"


def ask(installation: TestInstallation, **changes: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status, and the checks by name."""
    result = CliRunner().invoke(cli, ["doctor", "--json"], env={**installation.variables, **changes})
    return result.exit_code, {check["name"]: check for check in json.loads(result.stdout)["checks"]}


def test_what_is_well_what_is_not_and_what_to_do(installation: TestInstallation) -> None:
    status, found = ask(installation)
    assert status == 1, "this installation has no capture yet"
    assert found.pop("replication slot")["state"] == "problem"
    assert {name: check["state"] for name, check in found.items()} == dict.fromkeys(
        ["settings", "postgres", "wal_level", "track_commit_timestamp", "max_slot_wal_keep_size", "schema", "zone data",
         "zone names", "zones in postgres", "clocks", "definitions", "topics"], "ok"
    )  # fmt: skip
    assert "nobody has led yet" in found["zone data"]["says"]

    slot = slot_name(installation.settings(CaptureSettings))
    with installation.connect() as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        connection.execute("UPDATE cronstream.coordinator_epoch SET tzdata = '2020a', tzdata_planned = '2020a'")
        status, found = ask(installation)
        assert status == 0, "warnings alone"
        assert (found["replication slot"]["state"], found["zone data"]["state"]) == ("warning", "warning")
        assert "nobody reads it" in found["replication slot"]["says"]

        connection.execute("UPDATE cronstream.coordinator_epoch SET tzdata = '2999a'")
        connection.execute(DEFINE, ("fine", "Europe/Berlin"))
        connection.execute("ALTER TABLE cronstream.job_definitions DISABLE TRIGGER USER")
        connection.execute(
            "INSERT INTO cronstream.job_definitions (name, cron, handler, revision)"
            " VALUES ('broken', '61 * * * *', 'log', 1)"
        )
    status, found = ask(installation, CRONSTREAM_PARTITIONS="12")
    problems = {name for name, check in found.items() if check["state"] == "problem"}
    assert (status, problems) == (1, {"zone data", "topics", "definitions"})
    assert "bring its tzdata package to 2999a" in found["zone data"]["remedy"]
    assert TZDATA_VERSION in found["zone data"]["says"]
    assert f"{installation.name}.triggers has 4, not 12" in found["topics"]["says"]
    (job,) = found["definitions"]["details"]
    assert (job["name"], '"61" is not allowed' in job["error"]) == ("broken", True)


def test_zones_that_postgres_counts_otherwise(installation: TestInstallation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Denver with Phoenix' data here: PostgreSQL's next summer time is the first difference."""
    changed = Zone("America/Denver", (files("tzdata") / "zoneinfo/America/Phoenix").read_bytes())
    monkeypatch.setattr(doctor, "zone_of", lambda name: changed if name == "America/Denver" else zone_of(name))
    with installation.connect() as connection:
        for zone in ("America/Denver", "Asia/Kolkata", "EST", "UTC"):
            connection.execute(DEFINE, (zone, zone))
    began = SystemClock().wall_us()
    _, found = ask(installation)
    assert found["zones in postgres"]["state"] == "warning"
    (one,) = found["zones in postgres"]["details"]
    assert (one["zone"], one["ours"], one["postgres"]) == ("America/Denver", "-07:00", "-06:00")
    real, now = zone_of("America/Denver"), began // SECOND
    if real.offset_at(now) == -25_200:
        gap = real.next_gap(now, now + 366 * 86_400)
        assert gap is not None
        assert parse_instant("first", one["first"]) == gap[0] * SECOND
    else:
        assert began <= parse_instant("first", one["first"]) + SECOND


def test_every_zone_at_once_is_compared_in_seconds(installation: TestInstallation) -> None:
    with installation.connect() as connection:
        connection.cursor().executemany(DEFINE, [(zone, zone) for zone in sorted(zone_names())])
    clock = SystemClock()
    began = clock.boot_ns()
    _, found = ask(installation)
    check = found["zones in postgres"]
    print(f"{len(zone_names())} zones in {(clock.boot_ns() - began) / 1e9:.1f} s: {check['says']}")
    assert check["state"] in ("ok", "warning")
    assert {one["zone"] for one in check["details"]} <= zone_names()


def test_a_database_without_schema_says_so_and_the_rest_is_looked_at(installation: TestInstallation) -> None:
    with installation.connect() as connection:
        connection.execute("DROP SCHEMA cronstream CASCADE")
    status, found = ask(installation)
    assert status == 1
    assert (found["schema"]["state"], found["schema"]["remedy"]) == ("problem", "run `cronstream setup`")
    assert "cronstream setup" in found["definitions"]["says"]
    assert (found["wal_level"]["state"], found["clocks"]["state"], found["topics"]["state"]) == ("ok", "ok", "ok")
