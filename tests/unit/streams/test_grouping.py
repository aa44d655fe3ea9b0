"""Ten thousand dead letters are one alert; a storm over many jobs is one alert as well."""

from __future__ import annotations

from cronstream.clock import SECOND, to_datetime
from cronstream.dead_letters import Record, letter_of
from cronstream.records import Item, Kind
from streams.grouping import BACKLOG_SECONDS, MANY_JOBS, Alert, Grouping
from streams.letters import DeadLetter, read_letter
from tests.unit.streams.making import NOON, outcomes

S = 1_000_000_000


def letter(job_id: int, offset: int = 0, reason: str = "exhausted", partition: int = 0) -> DeadLetter:
    value = outcomes([Item(Kind.FAILED, job_id, NOON)]).encode()
    made = letter_of(Record("outcomes", 0, offset, None, value, []), reason, "no", "streams")
    record = Record("dead", partition, offset, made.key, made.value, made.headers)
    return read_letter(record, to_datetime(NOON + offset * SECOND))


class Watch:
    """A grouping, and what it has told."""

    def __init__(self) -> None:
        self.grouping = Grouping(0.5, 30)
        self.told: list[Alert] = []

    def add(self, at: float, *letters: DeadLetter) -> None:
        for one in letters:
            self.grouping.add(one, round(at * S))

    def at(self, at: float, caught_up: bool = True) -> list[int]:
        """The counts of the alerts that are due then."""
        alerts = self.grouping.due(round(at * S), caught_up=caught_up)
        self.told += alerts
        return [alert.body["count"] for alert in alerts]


def test_the_first_alert_waits_half_a_second_and_tells_all_of_it() -> None:
    watch = Watch()
    watch.add(10, *(letter(1, offset) for offset in range(10_000)))
    assert watch.at(10.4) == []
    assert watch.at(10.5) == [10_000]
    body = watch.told[0].body
    assert (body["reason"], body["job_id"], body["jobs"], body["see"]) == (
        "exhausted",
        1,
        1,
        "cronstream dead-letters list --reason exhausted --job 1",
    )
    assert body["last_at"] > body["first_at"]
    assert watch.at(100) == []


def test_what_follows_is_told_a_window_later_with_its_count() -> None:
    watch = Watch()
    watch.add(0, letter(1, 0))
    assert watch.at(0.5) == [1]
    watch.add(1, letter(1, 1))
    watch.add(20, letter(1, 2))
    assert watch.at(30) == []
    assert watch.at(30.5) == [2]
    watch.add(70, letter(1, 3))
    assert watch.at(70.4) == []
    assert watch.at(70.5) == [1], "after a quiet window it is a first alert again"


def test_jobs_and_reasons_are_told_apart() -> None:
    watch = Watch()
    watch.add(0, letter(1, 0), letter(2, 1), letter(2, 2), letter(2, 3, "final"))
    assert sorted(watch.at(1)) == [1, 1, 2]


def test_many_jobs_of_one_reason_are_one_alert_and_so_is_what_follows() -> None:
    watch = Watch()
    watch.add(0, *(letter(job, job) for job in range(10_000)), letter(1, 0, "final"))
    assert watch.at(0.5) == [10_000, 1]
    assert (watch.told[0].body["jobs"], watch.told[0].body["job_id"]) == (10_000, None)
    watch.add(2, *(letter(job, job) for job in range(10_000, 10_000 + MANY_JOBS + 1)))
    assert watch.at(30.4) == []
    assert watch.at(30.5) == [MANY_JOBS + 1]


def test_a_backlog_is_read_to_its_end_before_it_is_told_but_not_for_ever() -> None:
    watch = Watch()
    watch.add(0, letter(1, 0))
    assert watch.at(3, caught_up=False) == []
    watch.add(3, letter(1, 1))
    assert watch.at(3.1) == [2]
    watch.add(100, letter(1, 2))
    assert watch.at(100.5 + BACKLOG_SECONDS, caught_up=False) == [1]


def test_what_is_not_told_is_known_by_partition() -> None:
    watch = Watch()
    watch.add(0, letter(1, 7), letter(2, 5), letter(2, 9, partition=3))
    assert [watch.grouping.first_untold(partition) for partition in (0, 1, 3)] == [5, None, 9]
    watch.at(1)
    assert watch.grouping.first_untold(0) is None
    assert sorted(tuple(alert.begins.items()) for alert in watch.told) == [((0, 5), (3, 9)), ((0, 7),)]


def test_an_alert_that_is_told_again_has_the_same_id() -> None:
    first, again = Watch(), Watch()
    for watch in (first, again):
        watch.add(0, letter(1, 7))
        watch.at(1)
    assert first.told[0].body["alert_id"] == again.told[0].body["alert_id"] == "exhausted-1-0-7"


def test_quiet_groups_are_forgotten() -> None:
    watch = Watch()
    watch.add(0, *(letter(job, job) for job in range(100)))
    watch.at(1)
    assert watch.grouping._quiet_until
    watch.at(60)
    assert watch.grouping._quiet_until == {}
