"""What figures are made of."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import feeding, fleet
from benchmarks.machine import busy
from benchmarks.measure import percentiles_ms
from benchmarks.peers.scenario import figures, strongest
from benchmarks.scale import jobs, seconds
from benchmarks.statistics import TableState, growth, growth_rows
from cronstream.bodies import work_of
from cronstream.records import Batch, Kind
from cronstream.topics import partition_of


def test_percentiles_are_in_milliseconds() -> None:
    values = percentiles_ms(np.arange(0, 101_000, 1000))
    assert (values["p50_ms"], values["p99_ms"], values["max_ms"]) == (50.0, 99.0, 100.0)


def test_percentiles_of_nothing_are_unknown() -> None:
    assert set(percentiles_ms(np.empty(0, np.int64)).values()) == {None}


def test_a_scale_shortens_runs_but_not_to_nothing() -> None:
    assert [jobs(count, scale=0.01) for count in (250_000, 5_000, 50)] == [2_500, 100, 50]
    assert [seconds(full, scale=0.01) for full in (600, 60, 10, 1)] == [60, 6, 3, 1]
    assert (jobs(250_000, scale=1), seconds(60, scale=1)) == (250_000, 60)


def test_a_peer_is_rated_from_the_instant_to_its_last_fire() -> None:
    at = 1_796_000_000.0
    fires = np.array([2_000_000, 500_000, 1_000_000, 4_000_000]) + int(at * 1e6)
    found = figures(at, fires, 3)
    assert found == {"fired": 3, "per_s": 1.5, "p50_ms": 1000.0, "p99_ms": pytest.approx(1980.0)}


def test_a_peer_that_fired_nothing_has_no_rate() -> None:
    assert figures(1.0, np.empty(0, np.int64), 3) == {"fired": 0, "per_s": None, "p50_ms": None, "p99_ms": None}


def test_peers_that_do_both_are_held_against_either() -> None:
    rates = {"a.dispatch": 5.0, "b.both": 7.0, "c.execute": 9.0}
    assert strongest(rates, "dispatch") == ("b.both", 7.0)
    assert strongest(rates, "execute") == ("c.execute", 9.0)
    assert strongest({}, "execute") is None


def test_busy_processes_are_named_with_their_cores_and_quiet_ones_are_not() -> None:
    before = {1: ("python", 10.0), 2: ("java", 5.0), 3: ("sh", 1.0)}
    after = {1: ("python", 10.5), 2: ("java", 6.0), 3: ("sh", 1.01), 4: ("python", 0.25)}
    assert busy(before, after, 1.0) == "java 1.00, python 0.75"
    assert busy(before, before, 1.0) == "none"


def state(table: int, index: int, dead: int) -> TableState:
    return TableState(100, dead, 1000 + dead, 500, 3, table, {"by_time": index})


def test_growth_is_a_multiple_of_the_size_before() -> None:
    before, after = state(1_000_000, 200_000, 0), state(1_500_000, 600_000, 40)
    assert growth(before, after) == {"table": 1.5, "by_time": 3.0}
    rows = growth_rows("schedules", before, after)
    assert rows[0][:6] == ("schedules", 1.0, 1.5, 1.5, 0, 40)
    assert rows[1][:4] == ("by_time", 0.2, 0.6, 3.0)
    assert len(rows[0]) == len(rows[1])
    assert after.since(before)["updates"] == 40


def test_fed_triggers_are_batches_of_their_own_partition() -> None:
    ids = range(1, 101)
    records = [pair for records in feeding.triggers(ids, 1_796_000_000_000_000, 4, 10) for pair in records]
    seen = []
    for partition, value in records:
        batch = Batch.decode(value)
        assert 0 < len(batch) <= 10
        assert {partition_of(int(job), 4) for job in batch.job_id} == {partition}
        assert set(batch.kind) == {Kind.RUN}
        assert work_of(batch.body(0)).handler == "log"
        seen += batch.job_id.tolist()
    assert sorted(seen) == list(ids)


def test_a_moved_cron_fires_at_the_instant_asked_for() -> None:
    at_us = 1_796_000_007_000_000
    crons = {shape.cron for shape in fleet.shapes() if shape.cron}
    assert len(crons) > 10
    for cron in crons:
        assert fleet._fires(fleet.moved(cron, at_us), at_us)
