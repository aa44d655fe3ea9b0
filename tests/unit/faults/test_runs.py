"""What reproduces a run, what it is made of, and the figures that its last line shows."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from random import Random

import msgspec
import pytest

from cronstream.bodies import Report, pack
from cronstream.bodies import Skip as SkipBody
from cronstream.records import Batch, Kind, Source
from cronstream.records import Item as WireItem
from tests.faults.collector import events_of
from tests.faults.events import Attempt, Edit, Fault, Rule, Trigger
from tests.faults.faults import FAULTS
from tests.faults.faults.points import named_points
from tests.faults.fleet import MISFIRES, ZONES, edited, fleet
from tests.faults.nemesis import SHORT, sequence
from tests.faults.oracle import SECOND, Expected
from tests.faults.verdict import Verdict, p99
from tests.faults.zones import BACK, FORWARD
from tests.unit.faults.small import S, Small, three_runs

NOON = 1_796_000_000 * SECOND


# ---- what reproduces a run -----------------------------------------------------------------------


def test_a_seed_makes_the_same_fleet_and_the_same_faults() -> None:
    assert list(fleet(Random(5), NOON, 10)) == list(fleet(Random(5), NOON, 10))
    assert list(fleet(Random(5), NOON, 10)) != list(fleet(Random(6), NOON, 10))
    assert list(islice(sequence(Random(5), None), 100)) == list(islice(sequence(Random(5), None), 100))


def test_a_long_run_has_every_fault_before_any_comes_again() -> None:
    first = list(islice(sequence(Random(1), None), len(FAULTS)))
    assert sorted(first) == sorted(FAULTS)


def test_the_short_set_has_at_least_twenty_faults_that_there_are() -> None:
    chosen = list(sequence(Random(1), SHORT))
    assert len(chosen) >= 20
    assert set(chosen) == set(SHORT)


def test_the_fleet_has_every_kind_policy_and_zone() -> None:
    rules = [job.rule for job in fleet(Random(3), NOON, 10)]
    assert len(rules) > 2000
    assert {rule.misfire_policy for rule in rules} == set(MISFIRES)
    assert {rule.overlap_policy for rule in rules} == {"allow", "queue", "skip"}
    assert {rule.jitter for rule in rules if rule.answers.startswith("fail")} == {"none", "equal", "full"}
    assert {rule.timezone for rule in rules} == {*ZONES, FORWARD, BACK}
    assert all(any(getattr(rule, kind) is not None for rule in rules) for kind in ("cron", "every_us", "run_at_us"))


def test_the_fleet_fires_about_a_hundred_times_a_second() -> None:
    edits = [Edit(number, NOON, job.rule) for number, job in enumerate(fleet(Random(3), NOON, 10))]
    assert 80 < Expected(edits, NOON, NOON + 60 * SECOND).count / 60 < 200


def test_every_edit_of_a_job_is_one_that_the_oracle_can_follow() -> None:
    random, rule = Random(9), Rule(every_us=SECOND)
    for _ in range(200):
        rule = edited(random, rule)
        assert (rule.cron is None) != (rule.every_us is None)
        assert Expected([Edit(1, NOON, rule)], NOON, NOON + 60 * SECOND).count > 0 or not rule.enabled


def test_fault_points_are_found_where_they_stand(tmp_path: Path) -> None:
    for name, text in (
        ("coordinator/writer.py", 'reach("advance.before")'),
        ("streams/sink.py", "reach('sink.stored')"),
        ("streams/lane.py", 'self._reach("sent")'),
        ("workers/run.py", "# reach nothing"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert sorted(named_points(tmp_path)) == [
        ("leader", "advance.before"),
        ("sink", "sink.stored"),
        ("streams", "admit.sent"),
        ("streams", "settle.sent"),
    ]


# ---- what topics say, as events ------------------------------------------------------------------


def batch(*items: WireItem) -> Batch:
    return Batch.of(items, token=7, published_at=5 * S, source=Source("cronstream.triggers", 2, 40, 1))


def test_triggers_become_events() -> None:
    value = batch(WireItem(Kind.RUN, 1, S), WireItem(Kind.SKIP, 2, S), WireItem(Kind.RUN_QUEUED, 3, S))
    assert list(events_of("triggers", 2, 9, 0, value)) == [
        Trigger(2, 9, 7, 5 * S, 1, S),
        Trigger(2, 9, 7, 5 * S, 3, S),
    ]


def test_attempts_and_outcomes_become_events() -> None:
    attempts = list(events_of("attempts", 2, 9, 6000, batch(WireItem(Kind.RUN, 1, S, 0, 2))))
    assert msgspec.to_builtins(attempts[0]) | {} == {
        "event": "attempt", "partition": 2, "offset": 9, "source": ("triggers", 2, 40, 1), "token": 7,
        "job_id": 1, "scheduled_us": S, "request_id": 0, "attempt": 2, "at_us": 6_000_000,
    }  # fmt: skip
    lost = WireItem(Kind.LOST, 1, S, 0, 1, bytes(pack(Report("t", "n", "worker-1", 5 * S, 6 * S, 7 * S))))
    skipped = WireItem(Kind.SKIPPED, 2, 3 * S, 0, 0, bytes(pack(SkipBody("t", "n", "paused", S, 3 * S, 3))))
    found = list(events_of("outcomes", 0, 1, 0, batch(lost, skipped)))
    assert [msgspec.to_builtins(event)["event"] for event in found] == ["outcome", "skip"]
    assert (found[0].how, found[0].worker, found[0].finished_us) == ("lost", "worker-1", 7 * S)  # type: ignore[union-attr]
    assert (found[1].first_us, found[1].last_us, found[1].count) == (S, 3 * S, 3)  # type: ignore[union-attr]


# ---- figures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("values", "worst"), [([], None), ([3.0, 1.0], 3.0), ([*range(100), 500], 99)])
def test_p99_is_a_value_that_was_measured(values: list[float], worst: float | None) -> None:
    assert p99(values) == worst


def test_a_takeover_lasts_to_the_first_trigger_of_the_newer_term() -> None:
    small = Small()
    small.run(1, token=5)
    small.run(2, token=6, published=2.75)
    small.run(3, token=6)
    small.faults.append(Fault("kill leader", "coordinator-1", round(1.5 * S), 2 * S, hit=True))
    assert Verdict.of(small.history()).takeovers("kill leader") == [1.25]
    small.faults.append(Fault("kill worker", "worker-1", 2 * S, round(2.5 * S), hit=True))
    assert Verdict.of(small.history()).takeovers("kill leader") == []  # the newer term came of something else


def test_lateness_is_that_of_what_fell_due_in_the_outage() -> None:
    small = Small()
    small.run(1, published=1.5)
    small.run(2, published=2.25)
    small.run(3, published=3.1)
    small.faults.append(Fault("crash postgres", "postgres", round(1.5 * S), round(2.5 * S), hit=True))
    assert Verdict.of(small.history()).lateness_in("crash postgres") == [0.25]


def test_a_silence_of_admission_ends_with_the_first_attempt_after_it() -> None:
    small = Small(until=9)
    for second in (1, 2, 3, 8, 9):
        small.run(second)
    small.faults.append(Fault("kill streams", "streams-1", round(3.5 * S), 4 * S, hit=True))
    assert Verdict.of(small.history()).first_after("kill streams", Attempt) == [pytest.approx(4.55)]


def test_the_last_line_counts_what_was_broken() -> None:
    small = three_runs()
    del small.attempts[1]
    line = Verdict.of(small.history()).line()
    assert (line["targets"], line["lost"], line["doubled"], line["good"]) == (3, 1, 1, False)
