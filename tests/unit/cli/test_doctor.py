"""What the doctor makes of facts: no server needed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

import pytest

from cli import checks
from cli.checks import Check
from cli.zone_comparison import Difference, first_difference, judge, offset_text, samples
from connectors.seen import Slot
from cronstream.schedule.instants import parse_instant, utc_text
from cronstream.schedule.zones import Zone, zone_of
from cronstream.topics import Topics

SPECS = Topics("here").specs(4)
GOOD = {
    "version": "17.5",
    "version_number": 170005,
    "wal_level": "logical",
    "track_commit_timestamp": "on",
    "max_slot_wal_keep_size": "1GB",
}
NOW = parse_instant("t", "2026-11-29T12:34:56Z") // 1_000_000


def test_settings_that_processes_refuse_are_a_problem() -> None:
    assert checks.process_settings([]).state == "ok"
    check = checks.process_settings(["CRONSTREAM_HISTORY_FOLDER: /x is no folder: make it first", "other"])
    assert check.state == "problem"
    assert check.says == "CRONSTREAM_HISTORY_FOLDER: /x is no folder: make it first; other"


def second(text: str) -> int:
    return parse_instant("t", text) // 1_000_000


class Theirs:
    """PostgreSQL, with data that a test chooses; counts what it is asked."""

    def __init__(self, zone: Zone, but: dict[tuple[int, int], int] | None = None) -> None:
        self.zone, self.but, self.asked = zone, but or {}, 0

    def __call__(self, seconds: Sequence[int]) -> list[int]:
        self.asked += 1
        return [self._offset(at) for at in seconds]

    def _offset(self, at: int) -> int:
        return next((o for (low, high), o in self.but.items() if low <= at < high), self.zone.offset_at(at))


def compare(name: str, theirs: Theirs, now: int = NOW) -> Difference | None:
    zone = zone_of(name)
    seconds = samples(zone, now)
    return first_difference(zone, seconds, theirs(seconds), theirs)


@pytest.mark.parametrize(
    ("held", "planned", "state"),
    [
        (None, None, "ok"),
        ("2026f", "2026f", "ok"),
        ("2026f", "2026b", "warning"),
        ("2026f", None, "warning"),
        ("2026b", "2026b", "warning"),
        ("2027a", "2026f", "problem"),
    ],
)
def test_zone_data_is_judged_by_what_leaders_had(held: str | None, planned: str | None, state: str) -> None:
    check = checks.zone_data("2026f", "2026.6", held, planned)
    assert check.state == state
    assert check.says.startswith("2026f (PyPI's tzdata 2026.6)")
    assert (check.remedy is None) == (state == "ok")
    assert held is None or held in check.says


def test_zone_names_that_only_one_side_knows() -> None:
    assert checks.zone_keys({"A/B"}, ["A/B"]).state == "ok"
    assert checks.zone_keys({"A/B"}, ["A/B", "A/C"]).state == "problem"
    assert checks.zone_keys({"A/B", "A/C"}, ["A/B"]).state == "warning"
    assert "A/A0, A/A1, A/A2, A/A3, A/A4 and 3 more" in checks.zone_keys((), [f"A/A{n}" for n in range(8)]).says


@pytest.mark.parametrize(
    ("change", "name", "state"),
    [
        ({}, "", ""),
        ({"version_number": 140011}, "postgres", "problem"),
        ({"wal_level": "replica"}, "wal_level", "problem"),
        ({"track_commit_timestamp": "off"}, "track_commit_timestamp", "problem"),
        ({"max_slot_wal_keep_size": "-1"}, "max_slot_wal_keep_size", "warning"),
    ],
)
def test_settings_of_postgres(change: dict[str, object], name: str, state: str) -> None:
    found = checks.server_settings({**GOOD, **change})
    assert len(found) == 4
    not_well = [(check.name, check.state) for check in found if check.state != "ok"]
    assert not_well == ([(name, state)] if name else [])
    assert all(check.remedy for check in found if check.state != "ok")


@pytest.mark.parametrize(
    ("slot", "state"),
    [
        (None, "problem"),
        (Slot(True, "reserved", 100), "ok"),
        (Slot(True, "extended", 100), "ok"),
        (Slot(False, "reserved", 100), "warning"),
        (Slot(True, "unreserved", 100), "warning"),
        (Slot(False, "lost", 100), "problem"),
    ],
)
def test_the_replication_slot(slot: Slot | None, state: str) -> None:
    check = checks.slot("here_capture", slot)
    assert (check.state, "here_capture" in check.says, check.remedy is None) == (state, True, state == "ok")


@pytest.mark.parametrize(
    ("apart_us", "state"), [(0, "ok"), (90_000, "ok"), (200_000, "warning"), (500_001, "problem"), (10**12, "problem")]
)
def test_clocks_apart(apart_us: int, state: str) -> None:
    assert checks.clocks(apart_us, 300, 500_000).state == state


def test_clocks_are_apart_by_what_the_round_trip_does_not_explain() -> None:
    assert checks.clocks_apart(100, 150, 200) == 0
    assert checks.clocks_apart(100, 90, 200) == 10
    assert checks.clocks_apart(100, 230, 200) == 30


def test_topics() -> None:
    there = {spec.name: spec.partitions for spec in SPECS}
    assert checks.topics(SPECS, {**there, "another": 7}).state == "ok"
    missing = checks.topics(SPECS, {spec.name: spec.partitions for spec in SPECS[1:]})
    assert (missing.state, missing.says) == ("problem", "missing: here.changes")
    other = checks.topics(SPECS, {**there, "here.triggers": 12})
    assert (other.state, other.says) == ("problem", "partitions: here.triggers has 12, not 4")


def test_definitions() -> None:
    assert checks.definitions(0, False, []) == Check("definitions", "ok", "0 definitions can be read")
    bad = checks.definitions(10_000, True, [{"job_id": 1}])
    assert (bad.state, bad.details) == ("problem", [{"job_id": 1}])
    assert "1 of a sample of 10,000 definitions" in bad.says


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "America/New_York", "Africa/Casablanca", "Asia/Kolkata"])
def test_equal_data_has_no_difference_and_costs_one_question(name: str) -> None:
    theirs = Theirs(zone_of(name))
    assert compare(name, theirs) is None
    assert theirs.asked == 1


def test_samples_hold_both_sides_of_every_change_of_five_years_and_are_bounded() -> None:
    seconds = samples(zone_of("Europe/Berlin"), NOW)
    assert seconds == sorted(set(seconds))
    assert seconds[0] == NOW
    for change in ("2027-03-28T01:00:00Z", "2031-10-26T01:00:00Z"):
        assert {second(change) - 1, second(change)} <= set(seconds)
    assert len(samples(zone_of("Africa/Casablanca"), NOW)) < 300


@pytest.mark.parametrize(
    ("theirs", "first", "ours", "postgres"),
    [
        # a zone that gave up summer time, and one that began it
        (Theirs(zone_of("America/Phoenix")), "2027-03-14T09:00:00Z", "-06:00", "-07:00"),
        # another offset from the first question on
        (Theirs(zone_of("America/Chicago")), "2026-11-29T12:34:56Z", "-07:00", "-06:00"),
        # the change an hour early, an hour late, and one that ours does not have
        (
            Theirs(
                zone_of("America/Denver"), {(second("2027-03-14T08:00:00Z"), second("2027-03-14T09:00:00Z")): -21_600}
            ),
            "2027-03-14T08:00:00Z",
            "-07:00",
            "-06:00",
        ),
        (
            Theirs(
                zone_of("America/Denver"), {(second("2027-03-14T09:00:00Z"), second("2027-03-14T10:00:00Z")): -25_200}
            ),
            "2027-03-14T09:00:00Z",
            "-06:00",
            "-07:00",
        ),
        (
            Theirs(
                zone_of("America/Denver"), {(second("2029-01-02T03:04:05Z"), second("2029-02-02T03:04:05Z")): -21_600}
            ),
            "2029-01-02T03:04:05Z",
            "-07:00",
            "-06:00",
        ),
    ],
)
def test_the_first_instant_of_a_difference_is_exact(theirs: Theirs, first: str, ours: str, postgres: str) -> None:
    found = compare("America/Denver", theirs)
    assert found is not None
    assert found.as_json() == {
        "zone": "America/Denver",
        "known": True,
        "first": first,
        "ours": ours,
        "postgres": postgres,
    }
    assert theirs.asked < 30


def test_a_change_that_only_postgres_has_is_found_in_a_zone_without_changes() -> None:
    ours = Zone("America/Denver", (files("tzdata") / "zoneinfo/America/Phoenix").read_bytes())
    seconds, theirs = samples(ours, NOW), Theirs(zone_of("America/Denver"))
    found = first_difference(ours, seconds, theirs(seconds), theirs)
    assert found is not None
    assert utc_text(found.second * 1_000_000) == "2027-03-14T09:00:00Z"


def test_differences_are_a_warning_that_names_them() -> None:
    assert judge(["UTC"], [], False).state == "ok"
    one = Difference("America/Denver", second("2027-03-14T09:00:00Z"), -25_200, -21_600)
    unknown = Difference("America/Coyhaique", NOW, 0, None)
    check = judge(["UTC", "America/Denver", "America/Coyhaique"], [one, unknown], False)
    assert check.state == "warning"
    assert check.says == (
        "2 of 3 zones in use differ: America/Denver from 2027-03-14T09:00:00Z (ours -07:00, PostgreSQL's -06:00); "
        "America/Coyhaique (unknown to PostgreSQL)"
    )
    assert check.details[1] == {"zone": "America/Coyhaique", "known": False}
    assert "and 5 more" in judge(["UTC"] * 99, [one] * 25, True).says


def test_offsets_as_text() -> None:
    assert [offset_text(o) for o in (0, 19_800, -12_600, -2_670)] == ["+00:00", "+05:30", "-03:30", "-00:44:30"]
