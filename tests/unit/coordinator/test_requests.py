"""What a request publishes next, in which order, and what becomes of it when leaders, jobs and rows go."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.allowance import Allowance
from coordinator.request_queue import RequestQueue
from coordinator.requests import NO_CURSOR, Step, next_step
from cronstream.bodies import work_of
from cronstream.records import Item, Kind
from tests.properties.term.world import SECOND, SETTINGS, World
from tests.unit.coordinator.rows import columns
from tests.unit.coordinator.test_dispatcher import go_on

NOW = 1_800_000_000 * SECOND
MINUTE = 60 * SECOND


def row(kind: str, **given: Any) -> dict[str, Any]:
    """A row of read_requests: request 7 of job 3, which runs every minute on the minute."""
    return {
        **columns(cron="* * * * *"),
        "defined": True,
        "stored_anchor_us": None,
        "number": 7,
        "kind": kind,
        "requested_job_id": 3,
        "published": 0,
        "cursor_us": None,
        "now_us": NOW + 60 * MINUTE,
        **given,
    }


def backfill(minutes: int, **given: Any) -> dict[str, Any]:
    """The minutes from NOW on, both ends included."""
    ends_us = NOW + (minutes - 1) * MINUTE
    return row("backfill", **{"cursor_us": NOW - 1, "ends_us": ends_us, "most_runs": 1000, **given})


def step_of(given: dict[str, Any], most: int = 10) -> Step:
    step = next_step(given, most)
    assert step is not None
    return step


def test_a_run_now_is_one_run_at_the_moment_that_it_was_asked_for() -> None:
    step = step_of(row("run-now", scheduled_us=NOW + 5))
    (item,) = step.items
    assert (item.kind, item.run, item.attempt) == (Kind.RUN, (3, NOW + 5, 7), 1)
    assert (step.state, step.published) == ("done", 1)


@pytest.mark.parametrize(
    ("policy", "kind"), [("allow", Kind.RUN), ("queue", Kind.RUN_QUEUED), ("skip", Kind.RUN_ALONE)]
)
@pytest.mark.parametrize("what", ["run-now", "backfill", "redrive"])
def test_a_request_keeps_to_the_overlap_policy(what: str, policy: str, kind: Kind) -> None:
    more = {
        "scheduled_us": NOW,
        "run_request_id": 0,
        "attempt": 6,
        "cursor_us": NOW - 1,
        "ends_us": NOW,
        "most_runs": 9,
    }
    assert step_of(row(what, overlap_policy=policy, **more)).items[0].kind == kind


def test_a_paused_job_runs_on_request() -> None:
    assert len(step_of(row("run-now", scheduled_us=NOW, enabled=False)).items) == 1
    assert len(step_of(backfill(5, enabled=False)).items) == 5


def test_a_redrive_keeps_the_run_s_identity_and_numbers_its_attempts_on() -> None:
    step = step_of(row("redrive", scheduled_us=NOW, run_request_id=0, attempt=6, max_attempts=5))
    (item,) = step.items
    assert (item.idempotency_key, item.attempt) == (f"3-{NOW}-0", 6)
    policy = work_of(item.body).policy
    assert (policy.first_attempt, policy.max_attempts, policy.last_attempt) == (6, 5, 10)


def test_a_backfill_goes_on_from_its_cursor_and_both_ends_are_in() -> None:
    given, times, states = backfill(25), [], []
    while given["cursor_us"] < given["ends_us"]:
        step = step_of(given)
        times += [item.scheduled_us for item in step.items]
        states.append(step.state)
        given |= {"cursor_us": step.cursor_us, "published": step.published}
    assert times == [NOW + minute * MINUTE for minute in range(25)]
    assert states == ["open", "open", "done"]
    assert given["published"] == 25


def test_a_backfill_knows_spread_and_bounds() -> None:
    plain = [item.scheduled_us for item in step_of(backfill(8)).items]
    spread = [item.scheduled_us for item in step_of(backfill(8, spread_seconds=50, name="some job")).items]
    offsets = {time_us % MINUTE for time_us in spread}
    assert len(offsets) == 1
    assert offsets != {0}
    assert len(spread) in (7, 8)
    bounded = step_of(backfill(8, starts_at_us=NOW + MINUTE, ends_at_us=NOW + 3 * MINUTE))
    assert [item.scheduled_us for item in bounded.items] == plain[1:4]


def test_a_range_without_a_time_is_done_at_once() -> None:
    step = step_of(backfill(3, cron="0 0 1 1 *"))
    assert (step.items, step.state, step.published) == ((), "done", 0)


def test_a_backfill_that_is_too_long_says_where_it_stopped() -> None:
    step = step_of(backfill(25, most_runs=12, published=9, cursor_us=NOW + 8 * MINUTE))
    assert [item.scheduled_us for item in step.items] == [NOW + minute * MINUTE for minute in (9, 10, 11)]
    assert (step.state, step.published) == ("cancelled", 12)
    assert "stopped after 12 runs; ask for the rest from 2027-01-15T08:12:00+00:00 on" in (step.reason or "")


def test_exactly_as_many_as_allowed_are_not_too_many() -> None:
    assert step_of(backfill(10, most_runs=10)).state == "done"


def test_an_interval_that_no_leader_has_planned_is_asked_for_again() -> None:
    given = {"cron": None, "every_us": MINUTE}
    assert next_step(backfill(5, **given), 10) is None
    assert len(step_of(backfill(5, **given, stored_anchor_us=NOW)).items) == 5
    assert len(step_of(row("run-now", scheduled_us=NOW, **given)).items) == 1


@pytest.mark.parametrize("kind", ["run-now", "redrive"])
def test_nothing_that_is_asked_for_runs_before_its_time(kind: str) -> None:
    given = row(kind, scheduled_us=NOW, run_request_id=0, attempt=6)
    assert next_step({**given, "now_us": NOW - 1}, 10) is None
    assert len(step_of({**given, "now_us": NOW}).items) == 1


def test_a_backfill_of_times_to_come_waits_for_them_whoever_wrote_it() -> None:
    given = backfill(25, most_runs=9)
    assert next_step({**given, "now_us": NOW - 1}, 10) is None
    begun = step_of({**given, "now_us": NOW + 2 * MINUTE + 1})
    assert [item.scheduled_us for item in begun.items] == [NOW, NOW + MINUTE, NOW + 2 * MINUTE]
    assert (begun.state, begun.published, begun.cursor_us) == ("open", 3, NOW + 2 * MINUTE)
    given |= {"published": 3, "cursor_us": begun.cursor_us}
    assert next_step({**given, "now_us": NOW + 2 * MINUTE + 2}, 10) is None
    # what is on the log is counted once, however often it is asked for again
    on_log = [(3, NOW + 3 * MINUTE, 7, 1)]
    assert next_step({**given, "now_us": NOW + 3 * MINUTE}, 10, on_log) is None
    step = next_step({**given, "now_us": NOW + 4 * MINUTE}, 10, on_log)
    assert step is not None
    assert ([item.scheduled_us for item in step.items], step.published) == ([NOW + 4 * MINUTE], 5)


@pytest.mark.parametrize("kind", ["run-now", "backfill", "redrive"])
def test_the_requests_of_a_job_that_is_gone_end_with_the_reason(kind: str) -> None:
    step = step_of(row(kind, defined=False, published=4))
    assert (step.items, step.state, step.reason, step.published) == ((), "cancelled", "the job was deleted", 4)


def test_a_definition_that_cannot_be_read_ends_its_requests() -> None:
    step = step_of(backfill(5, cron="no such thing"))
    assert step.state == "cancelled"
    assert (step.reason or "").startswith("invalid: cron")


# ---- the queue ---------------------------------------------------------------------------------


def waiting_step(number: int, items: int, *, backfill: bool = False, job_id: int = 1) -> Step:
    runs = tuple(Item(Kind.RUN, job_id, NOW + at, number) for at in range(items))
    return Step(number, job_id, runs, items, NO_CURSOR, "done", None, backfill)


def test_backfills_never_hold_run_nows_up_and_keep_to_their_rate() -> None:
    queue = RequestQueue(SETTINGS.model_copy(update={"backfill_per_second": 10}), NOW)
    queue.add([waiting_step(number, 10, backfill=True) for number in range(5)])
    assert [step.number for step in queue.take(NOW)] == [0]
    queue.add([waiting_step(9, 1)])
    assert [step.number for step in queue.take(NOW)] == [9]
    assert queue.wait_seconds() == pytest.approx(0.1)
    taken = [len(queue.take(NOW + tick * SECOND // 10)) for tick in range(1, 31)]
    assert sum(taken) == 3


def test_what_waits_of_a_deleted_job_is_not_published() -> None:
    queue = RequestQueue(SETTINGS, NOW)
    queue.add([waiting_step(1, 1, job_id=1), waiting_step(2, 1, job_id=2)])
    queue.delete(1)
    first, second = queue.take(NOW)
    assert (first.items, first.state, first.published) == ((), "cancelled", 0)
    assert len(second.items) == 1


def test_an_allowance_holds_no_more_than_a_second_s_worth() -> None:
    allowance = Allowance(10, NOW)
    allowance.spend(15)
    assert allowance.left(NOW) == -5
    assert allowance.wait_seconds() == pytest.approx(0.6)
    assert allowance.left(NOW - SECOND) == -5
    assert allowance.left(NOW + SECOND) == 5
    assert allowance.left(NOW + 60 * SECOND) == 10


# ---- the leader --------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    world = World(1)
    world.meanwhile = world.log.faults = False
    return world


def test_a_backfill_that_outlives_its_leader_has_every_run_once(world: World) -> None:
    job_id = world.insert(cron="* * * * * *")
    go_on(world, 2)
    row = world.backfill(job_id, 90, most_runs=1000)
    go_on(world, 1)
    for _ in range(20):  # each leader dies with a step published and not stored
        world.read()
        world.dispatch()
        world.take_office()
        go_on(world, 1)
    assert row.state == "done"
    assert row.published == len(world.runs_of(row)) == 90
    assert world.runs_of(row) == sorted(world.runs_of(row))


def test_many_backfills_take_turns_and_a_run_now_passes_them(world: World) -> None:
    job_id = world.insert(cron="* * * * * *")
    go_on(world, 2)
    backfills = [world.backfill(job_id, 60) for _ in range(30)]
    world.read()
    under_way = [step for arrival in iter(world.mailbox.take, None) for step in getattr(arrival, "steps", ())]
    assert 0 < len(under_way) < 10
    world.take_office()
    go_on(world, 2)
    assert any(row.state == "open" for row in backfills)
    now = world.run_now(job_id)
    go_on(world, 1)
    assert now.state == "done"
    go_on(world, 40)
    assert [(row.state, row.published) for row in backfills] == [("done", 60)] * 30
    world.settle()
    world.check()


def test_a_backfill_whose_definition_changes_with_its_leader_counts_what_stands_on_the_log(world: World) -> None:
    """Another schedule has none of the times that were published and not noted: they stand, and are counted."""
    job_id = world.insert(cron="*/2 * * * * *")
    go_on(world, 2)
    row = world.backfill(job_id, 10)
    world.read()
    world.clock.advance(0.1)
    world.dispatch()
    published = world.runs_of(row)
    assert published
    world.edit(job_id, cron="0 0 1 1 *")
    world.take_office()
    go_on(world, 3)
    assert (row.state, row.published, world.runs_of(row)) == ("done", len(published), published)
    world.settle()
    world.check()


def test_what_the_last_leader_published_and_did_not_note_is_not_published_again(world: World) -> None:
    """However long nobody led: admission would have forgotten it by then."""
    job_id = world.insert(every_us=61 * SECOND)
    go_on(world, 2)
    now, redrive = world.run_now(job_id), world.redrive(job_id, world.now_us() - SECOND, 0, 6)
    world.read()
    world.dispatch()
    world.clock.advance(3600)
    world.take_office()
    go_on(world, 3)
    items = [item for _, item in world.log.items(job_id) if item.request_id or item.attempt > 1]
    assert [(item.request_id, item.attempt) for item in items] == [(now.number, 1), (0, 6)]
    assert [(row.state, row.published) for row in (now, redrive)] == [("done", 1)] * 2


def test_what_capture_missed_is_found_by_the_audit(world: World) -> None:
    job_id = world.insert(every_us=61 * SECOND)
    go_on(world, 2)
    row = world.run_now(job_id, captured=False)
    go_on(world, 3)
    assert (row.state, world.runs_of(row)) == ("done", [row.parameters["scheduled_us"]])


def test_a_request_that_is_heard_of_again_after_its_end_is_published_once(world: World) -> None:
    job_id = world.insert(every_us=61 * SECOND)
    go_on(world, 1)
    row = world.run_now(job_id)
    go_on(world, 2)
    world.reader.requests.requested(row.number, row.kind)
    go_on(world, 15)
    assert len([item for _, item in world.log.items(job_id) if item.request_id == row.number]) == 1
    assert world.reader.requests.open == world.reader.requests.unseen == 0


def test_a_job_s_own_times_are_not_moved_by_requests(world: World) -> None:
    """Neither by a run-now nor by a redrive of an old time, also when they are all that the tail holds."""
    job_id = world.insert(every_us=3 * SECOND)
    go_on(world, 4)
    world.run_now(job_id)
    world.redrive(job_id, world.now_us() - 3600 * SECOND, 0, 6)
    world.read()
    world.dispatch()
    world.take_office()
    go_on(world, 8)
    world.settle()
    world.check()
