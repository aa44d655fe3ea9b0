"""The demo's parts without a server."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from cronstream.clock import FakeClock
from cronstream.schedule import schedule_of
from demo.audit import Result, rules_of
from demo.events import EDITED_TO_SECONDS, Edit, Kill
from demo.fleet import FastJob, RealJob, duration, fast_schedules, real_fleet
from demo.forecast import drawing, per_minute, save_png, summary
from demo.oracle import SECOND, Rule, judge
from demo.show import plain_line
from demo.timeline import Reading, Timeline
from demo.watch import Figures

NOON = 1_796_040_000 * SECOND


def test_the_real_fleet_is_whole() -> None:
    fleet = real_fleet()
    assert len(fleet) == len({job.name for job in fleet}) == 1335
    assert all((job.cron is None) != (job.every is None) for job in fleet)


@pytest.mark.parametrize(
    ("text", "seconds"), [("12h", 43200), ("4h30m", 16200), ("1h20m0s", 4800), ("90s", 90), ("680m", 40800)]
)
def test_durations_of_go(text: str, seconds: int) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "h", "12", "-1h", "1m1h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration(text)


def test_the_fast_jobs_are_three_hundred_and_each_fires_every_1_to_20_seconds() -> None:
    schedules = list(fast_schedules())
    assert len(schedules) == len({name for name, _, _ in schedules}) == 300
    assert {every for _, _, every in schedules if every} == {timedelta(seconds=n) for n in range(1, 21)}
    assert sum(cron is not None for _, cron, _ in schedules) == 60


def test_the_oracle_and_the_product_agree_on_every_kind_of_fast_job() -> None:
    until = NOON + 200 * SECOND
    for _, cron, every in fast_schedules():
        after = NOON + 123_456
        seconds = None if every is None else round(every.total_seconds())
        step = None if cron is None else int(cron.split()[0][2:])
        schedule = schedule_of(cron=cron, every_us=seconds and seconds * SECOND, anchor_us=after)
        found, at = [], schedule.next_after(after)
        while at is not None and at <= until:
            found.append(at)
            at = schedule.next_after(at)
        assert list(Rule(1, after, until, seconds, step).instants()) == found


def test_a_timeline_translates_by_the_quickest_reading_nearby() -> None:
    readings = [Reading(0, NOON, 1_000_000), Reading(2_000_000_000, NOON + 2 * SECOND + 700, 30_000_000)]
    timeline = Timeline(FakeClock(boot_ns=3_000_000_000), readings)
    assert timeline.database_us(3_000_000_000) == NOON + 3 * SECOND
    assert timeline.now_us() == NOON + 3 * SECOND


def test_a_clock_that_was_stepped_is_read_off_the_readings_after_the_step() -> None:
    readings = [Reading(0, NOON, 1000), Reading(100_000_000_000, NOON + 90 * SECOND, 9000)]
    assert Timeline(FakeClock(), readings).database_us(101_000_000_000) == NOON + 91 * SECOND


def test_the_edit_takes_effect_with_the_first_run_of_the_new_schedule() -> None:
    edit = Edit(FastJob(5, "every-15s-01", 15, None, NOON))
    edit.capture_lag(80.0)
    edit.committed(NOON + 20 * SECOND)
    edit.capture_lag(80.0)
    edit.capture_lag(95.0)
    due = NOON + (20 + EDITED_TO_SECONDS) * SECOND
    assert edit.hear(f"5-{NOON + 15 * SECOND}-0", NOON + 21 * SECOND) is None
    assert edit.hear(f"6-{due}-0", due + 1) is None
    said = edit.hear(f"5-{due}-0", due + 40_000)
    assert said is not None
    assert said.startswith("took effect: the leader knew of it 95 ms after the commit; ")
    assert said.endswith("the new schedule's first run, due 3 s after the commit, started 40 ms late")
    assert edit.hear(f"5-{due}-0", due + 50_000) is None, "said once"


def test_the_takeover_is_the_first_call_with_a_newer_token() -> None:
    kill = Kill()
    assert kill.hear(9, 1) is None
    kill.killed("coordinator-1", 9, 1_000_000_000)
    assert kill.hear(9, 1_100_000_000) is None, "what the dead leader had published still comes"
    said = kill.hear(12, 7_500_000_000)
    assert said is not None
    assert "6.500 s" in said
    assert kill.arrival_seconds == 6.5, "what the last line says"
    assert kill.hear(12, 7_600_000_000) is None


def test_rules_follow_the_edit() -> None:
    edit = Edit(FastJob(5, "every-15s-01", 15, None, NOON))
    jobs = [edit.job, FastJob(6, "cron-05s-01", None, 5, NOON + 1)]
    end = NOON + 60 * SECOND
    assert rules_of(jobs, edit, end) == [Rule(5, NOON, end, 15), Rule(6, NOON + 1, end, None, 5)]
    edit.committed(NOON + 20 * SECOND)
    assert rules_of(jobs, edit, end) == [
        Rule(5, NOON, NOON + 20 * SECOND, 15),
        Rule(5, NOON + 20 * SECOND, end, EDITED_TO_SECONDS),
        Rule(6, NOON + 1, end, None, 5),
    ]


def test_the_last_line_has_the_keys_that_were_promised() -> None:
    verdict = judge({(1, NOON)}, set(), [], NOON)
    assert json.loads(json.dumps(Result(verdict, 0, 6.4321).line())) == {
        "expected": 1,
        "received": 0,
        "missed": 1,
        "duplicated": 0,
        "early": 0,
        "worst_lateness_ms": 0.0,
        "takeover_s": 6.432,
    }


def test_a_demo_without_a_takeover_or_with_an_early_publish_has_failed() -> None:
    clean = judge(set(), set(), [], NOON)
    assert Result(clean, 0, 6.4).passed
    assert not Result(clean, 0, None).passed
    assert not Result(clean, 1, 6.4).passed


def test_the_forecast_counts_each_minute_and_leaves_parked_jobs_out(tmp_path: Path) -> None:
    fleet = [
        RealJob("hourly", "0 * * * *", None, None, "a"),
        RealJob("half", None, timedelta(minutes=30), None, "a"),
        RealJob("parked", "0 0 30 2 *", None, None, "a"),
    ]
    counts = per_minute(fleet, NOON)
    assert len(counts) == 1440
    assert sum(counts) == 23 + 47, "strictly after now, before this time tomorrow"
    assert counts[60] == 2
    assert summary(counts, 3) == "3 jobs, 70 triggers over the next 24 hours: 0.0 a minute, 2 in the busiest"
    lines = drawing(counts, NOON)
    assert len({len(line) for line in lines[:-1]}) == 1
    assert "█" in lines[0]
    assert lines[-1].endswith(" UTC")
    file = tmp_path / "forecast.png"
    save_png(counts, NOON, 3, file)
    assert file.read_bytes().startswith(b"\x89PNG")


def test_unknown_figures_are_dashes_and_a_silent_leader_is_questioned() -> None:
    assert plain_line(Figures(), 3.4).split() == ["3", "none", *["-"] * 8]
    assert "coordinator-1 ?" in plain_line(Figures(leader="coordinator-1"), 3)
