"""The writer's queue: what goes into one statement, and what its answer means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from coordinator.writer import NONE, Advances, Fenced, PlanRow, Plans, Writer, merge, plan_statements
from cronstream.clock import FakeClock
from cronstream.settings import CoordinatorSettings


def advances(*rows: tuple[int, int, int, int], **offsets: int) -> Advances:
    columns = np.array(rows, np.int64).T
    return Advances(*columns, {int(name[1:]): offset for name, offset in offsets.items()})


def plans(job_id: int, expected: int = 0, *, next_us: int | None = 5, gone: bool = False) -> Plans:
    return Plans([PlanRow(job_id, expected, expected + 1, next_us, 9, None, gone, (job_id * 10,))], {0: job_id})


class Postgres:
    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.versions: dict[int, int] = {}
        self.fenced = 1
        self.matches: int | None = None

    def __call__(self, name: str, given: dict[str, Any]) -> list[Any]:
        self.asked.append((name, given))
        if name == "read_versions":
            return [(job_id, self.versions[job_id]) for job_id in given["job_ids"] if job_id in self.versions]
        return [(self.fenced, len(given["job_ids"]) if self.matches is None else self.matches)]


@pytest.fixture
def postgres() -> Postgres:
    return Postgres()


@pytest.fixture
def unmatched() -> list[list[int]]:
    return []


@pytest.fixture
def writer(postgres: Postgres, unmatched: list[list[int]]) -> Writer:
    settings = CoordinatorSettings(postgres="", kafka="k:1", etcd="e:1")
    return Writer(settings, 7, FakeClock(), unmatched=unmatched.append, end_term=print, ask=postgres)


def test_merged_advances_keep_the_first_expected_and_the_last_of_the_rest() -> None:
    merged = merge([advances((2, 5, 6, 100), (1, 1, 2, 50), p0=3), advances((2, 6, 7, 200), p0=4, p1=9)])
    assert merged.job_id.tolist() == [1, 2]
    assert merged.expected.tolist() == [1, 5]
    assert merged.version.tolist() == [2, 7]
    assert merged.next_us.tolist() == [50, 200]
    assert merged.offsets == {0: 4, 1: 9}


def test_plan_parameters_are_ordered_by_job_and_name_every_change() -> None:
    (given,) = plan_statements([plans(2, next_us=None), plans(1, gone=True)])
    assert given["job_ids"] == [1, 2]
    assert given["next_us"] == [5, NONE]
    assert given["gone"] == [True, False]
    assert given["change_ids"] == [10, 20]
    assert (given["partitions"], given["offsets"]) == ([0], [1])


def test_neighbours_of_one_kind_are_one_statement(writer: Writer, postgres: Postgres) -> None:
    for write in (advances((1, 1, 2, 9)), advances((1, 2, 3, 10)), plans(5), plans(6), advances((1, 3, 4, 11))):
        writer.put(write)
    for flushed in (2, 4, 5):
        assert writer.write_next()
        assert writer.flushed == flushed
    assert [name for name, _ in postgres.asked] == ["advance", "store_plans", "advance"]


def test_a_job_that_fired_often_while_much_waits_is_written_once(
    writer: Writer, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.writer.MOST_ROWS", 2)
    for fired in range(1, 8):
        writer.put(advances(*((job_id, fired, fired + 1, fired) for job_id in (3, 1, 2)), p0=fired))
    assert writer.write_next()
    assert (writer.flushed, writer.waiting) == (7, 0)
    written = [(name, given["job_ids"], given["versions"], given["offsets"]) for name, given in postgres.asked]
    assert written == [
        ("advance", [1, 2], [8, 8], []),
        ("advance", [3], [8], [7]),
    ]


def test_advances_alone_note_their_offsets(writer: Writer, postgres: Postgres) -> None:
    writer.put(advances((1, 1, 2, 9), p1=3))
    writer.write_next()
    assert (postgres.asked[0][1]["partitions"], postgres.asked[0][1]["offsets"]) == ([1], [3])


def test_two_plans_of_one_job_are_two_statements(writer: Writer) -> None:
    writer.put(plans(5))
    writer.put(plans(5, 1))
    writer.write_next()
    assert (writer.flushed, writer.waiting) == (1, 1)


def test_a_write_that_had_landed_unseen_is_done(writer: Writer, postgres: Postgres, unmatched: list[list[int]]) -> None:
    postgres.matches, postgres.versions = 0, {1: 2}
    writer.put(advances((1, 1, 2, 9)))
    writer.write_next()
    assert (unmatched, writer.flushed) == ([], 1)


def test_rows_that_somebody_else_wrote_are_read_again(
    writer: Writer, postgres: Postgres, unmatched: list[list[int]]
) -> None:
    postgres.matches, postgres.versions = 1, {1: 40, 2: 2}
    writer.put(advances((1, 1, 2, 9), (2, 1, 2, 9), (3, 1, 2, 9)))
    writer.write_next()
    assert unmatched == [[1, 3]]


def test_a_newer_token_ends_it(writer: Writer, postgres: Postgres) -> None:
    postgres.fenced = 0
    writer.put(advances((1, 1, 2, 9)))
    with pytest.raises(Fenced):
        writer.write_next()


def test_it_tells_how_long_the_oldest_write_waits(postgres: Postgres) -> None:
    clock = FakeClock()
    settings = CoordinatorSettings(postgres="", kafka="k:1", etcd="e:1")
    writer = Writer(settings, 7, clock, unmatched=print, end_term=print, ask=postgres)
    writer.put(plans(1))
    clock.advance(3)
    writer.put(plans(2))
    assert writer.waiting_seconds() == 3
