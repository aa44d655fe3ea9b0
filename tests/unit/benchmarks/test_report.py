"""The report keeps what was measured, and says null of what was not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import registry
from benchmarks.headlines import HEADLINES, Headline, summary
from benchmarks.report import Report


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "report.json"


def read(file: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(file.read_text())
    return found


def test_headlines_that_were_not_run_are_null_and_come_first(file: Path) -> None:
    report = Report(fresh=True, file=file)
    report.set("aaa.detail", 1)
    report.set("steady_p50_ms", 5.43219)
    report.write()
    values = read(file)
    assert list(values)[: len(HEADLINES)] == [headline.key for headline in HEADLINES]
    assert values["steady_p50_ms"] == 5.432
    assert values["burst_p99_ms"] is None


def test_a_scenario_that_runs_again_replaces_all_its_keys_and_no_others(file: Path) -> None:
    report = Report(fresh=True, file=file)
    for key in ("burst_p99_ms", "burst.old", "herd_p99_ms", "herd.old"):
        report.set(key, 7)
    report.write()
    again = Report(fresh=False, file=file)
    again.begin("burst")
    again.write()
    values = read(file)
    assert values["burst_p99_ms"] is None
    assert "burst.old" not in values
    assert (values["herd_p99_ms"], values["herd.old"]) == (7, 7)


def test_a_fresh_report_forgets_the_last_one(file: Path) -> None:
    report = Report(fresh=True, file=file)
    report.set("herd_p99_ms", 7)
    report.write()
    assert Report(fresh=True, file=file).get("herd_p99_ms") is None


def test_goals_are_reached_from_the_right_side() -> None:
    at_most, at_least = Headline("late", "x", 10), Headline("many", "x", 10, at_most=False)
    assert (at_most.reached(10), at_most.reached(10.1)) == (True, False)
    assert (at_least.reached(10), at_least.reached(9.9)) == (True, False)
    assert at_most.reached(None) is None
    assert Headline("any", "x").reached(3) is None
    assert (at_most.wanted, at_least.wanted) == ("at most 10", "at least 10")


def test_the_summary_has_a_line_for_every_headline_of_what_was_run() -> None:
    rows = {row[0]: row for row in summary({"herd_p99_ms": 1200.0, "steady_p50_ms": 3.0}, {"herd", "burst"})}
    assert rows["herd_p99_ms"] == ("herd_p99_ms", 1200.0, "at most 1,000", "no")
    assert rows["burst_p99_ms"][1:] == (None, "at most 250", "")
    assert "steady_p50_ms" not in rows


def test_every_headline_belongs_to_a_scenario_that_exists() -> None:
    assert {headline.scenario for headline in HEADLINES} <= set(registry.ALL)
    assert len({headline.key for headline in HEADLINES}) == len(HEADLINES)


def test_the_usual_run_fits_into_a_quarter_of_an_hour() -> None:
    assert registry.budget_s(registry.USUAL, full=False) < 15 * 60
