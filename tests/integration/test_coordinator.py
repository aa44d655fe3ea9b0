"""The coordinator process on real servers: from a row in SQL to triggers in Kafka."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from coordinator.election import Leader, read_leader
from cronstream.bodies import skip_of
from cronstream.clock import SECOND
from cronstream.records import Kind
from cronstream.topics import partition_of
from sql.queries import load
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from tests.support.triggers import Watcher

# No capture here: the audit finds edits, and does so quickly.
AUDITED = {"audit_seconds": 0.3, "audit_stale_seconds": 0.2}


@pytest.fixture
def triggers(installation: TestInstallation) -> Iterator[Watcher]:
    watcher = Watcher(installation.endpoints.kafka, installation.topics.triggers)
    yield watcher
    watcher.close()


def leader_of(installation: TestInstallation) -> Leader | None:
    return read_leader(installation.endpoints.etcd, f"/{installation.name}")


def await_leader(installation: TestInstallation, node: str | None = None) -> Leader:
    def led() -> Leader | None:
        leader = leader_of(installation)
        return leader if leader is not None and node in (None, leader.node) else None

    return eventually(led, within=15, says=f"{node or 'somebody'} leads")


def insert(installation: TestInstallation, name: str, **columns: object) -> int:
    columns = {"handler": "log", "name": name, **columns}
    names = ", ".join(columns)
    values = ", ".join(["%s"] * len(columns))
    with installation.connect() as connection:
        row = connection.execute(
            f"INSERT INTO cronstream.job_definitions ({names}) VALUES ({values}) RETURNING job_id",  # type: ignore[arg-type]
            list(columns.values()),
        ).fetchone()
    assert row is not None
    return int(row[0])


def times_of(watcher: Watcher, job_id: int, kind: Kind = Kind.RUN) -> list[int]:
    return [seen.item.scheduled_us for seen in watcher.poll() if seen.item.job_id == job_id and seen.item.kind == kind]


def test_a_row_becomes_triggers_at_its_times(installation: TestInstallation, triggers: Watcher) -> None:
    installation.start("coordinator", "c1", **AUDITED)
    await_leader(installation)
    job_id = insert(installation, "every-second", every="1 second")
    times = eventually(lambda: len(times_of(triggers, job_id)) >= 4 and times_of(triggers, job_id), within=20)
    with installation.connect() as connection:
        row = connection.execute(
            "SELECT cronstream.us(anchor) FROM cronstream.schedules WHERE job_id = %s", [job_id]
        ).fetchone()
    assert row is not None
    assert times == [row[0] + (index + 1) * SECOND for index in range(len(times))]
    for seen in triggers.seen:
        assert seen.published_at >= seen.item.scheduled_us
        assert seen.partition == partition_of(job_id, 4)


def test_a_single_time_that_passes_in_a_pause_is_skipped_with_its_reason_when_the_job_is_resumed(
    installation: TestInstallation, triggers: Watcher
) -> None:
    installation.start("coordinator", "c1", **AUDITED)
    await_leader(installation)
    with installation.connect() as connection:
        (moment,) = connection.execute("SELECT clock_timestamp() + interval '1.5 seconds'").fetchone() or (None,)
        job_id = insert(installation, "once", run_at=moment, enabled=False)

        def planned() -> bool:
            passed = connection.execute("SELECT clock_timestamp() > %s", [moment]).fetchone()
            return passed == (True,) and connection.execute("SELECT FROM cronstream.job_changes").fetchone() is None

        eventually(planned, within=20, says="the pause is planned and the time has passed")
        connection.execute("SELECT cronstream.resume('default', 'once')")
        (scheduled_us,) = eventually(lambda: times_of(triggers, job_id, Kind.SKIP), within=20)
        connection.execute("SELECT cronstream.pause('default', 'once')")
        connection.execute("SELECT cronstream.delete('default', 'once')")
    eventually(lambda: times_of(triggers, job_id, Kind.CANCEL), within=20)
    assert scheduled_us == round(moment.timestamp() * SECOND)
    assert times_of(triggers, job_id, Kind.SKIP) == [scheduled_us]
    (skip,) = [seen.item for seen in triggers.seen if seen.item.kind == Kind.SKIP]
    assert skip_of(skip.body).reason == "paused"


def test_two_coordinators_lead_one_after_the_other(installation: TestInstallation, triggers: Watcher) -> None:
    first = installation.start("coordinator", "c1", **AUDITED)
    token = await_leader(installation, "c1").token
    installation.start("coordinator", "c2", **AUDITED)
    job_id = insert(installation, "every-second", every="1 second")
    eventually(lambda: len(times_of(triggers, job_id)) >= 2, within=20)
    first.send_signal(signal.SIGTERM)
    assert first.wait(5) == 0
    assert await_leader(installation, "c2").token > token
    count = len(times_of(triggers, job_id))
    eventually(lambda: len(times_of(triggers, job_id)) >= count + 3, within=20)
    times = times_of(triggers, job_id)
    assert times == [times[0] + index * SECOND for index in range(len(times))]


def test_a_killed_leader_is_followed_and_nothing_is_missing(installation: TestInstallation, triggers: Watcher) -> None:
    first = installation.start("coordinator", "c1", **AUDITED)
    await_leader(installation, "c1")
    installation.start("coordinator", "c2", **AUDITED)
    job_id = insert(installation, "every-second", every="1 second")
    eventually(lambda: len(times_of(triggers, job_id)) >= 2, within=20)
    first.kill()
    await_leader(installation, "c2")
    count = len(times_of(triggers, job_id))
    eventually(lambda: len(times_of(triggers, job_id)) >= count + 3, within=20)
    times = times_of(triggers, job_id)
    assert times == [times[0] + index * SECOND for index in range(len(times))]


def test_a_node_with_older_zone_data_does_not_lead_and_says_so(
    installation: TestInstallation, triggers: Watcher
) -> None:
    with installation.connect() as connection:
        connection.execute("UPDATE cronstream.coordinator_epoch SET tzdata = '2999a'")
    process = installation.start("coordinator", "c1", **AUDITED)
    eventually(lambda: "time zone data" in installation.log_of("c1"), within=15)
    assert "older than 2999a" in installation.log_of("c1")
    eventually(lambda: leader_of(installation) is None, within=5)
    assert process.poll() is None
    assert triggers.poll() == []


def test_an_etcd_that_counts_anew_is_refused_until_it_is_adopted(
    installation: TestInstallation, triggers: Watcher
) -> None:
    with installation.connect() as connection:
        connection.execute("UPDATE cronstream.coordinator_epoch SET token = 1000000000")
        installation.start("coordinator", "c1", **AUDITED)
        eventually(lambda: "cronstream adopt-etcd" in installation.log_of("c1"), within=15)
        connection.execute(load("coordinator")["adopt_etcd"])
        job_id = insert(installation, "every-second", every="1 second")
        eventually(lambda: len(times_of(triggers, job_id)) >= 2, within=30)
    assert min(seen.token for seen in triggers.seen) > 1000000000


def test_a_wiped_etcd_is_known_by_its_missing_name_whatever_its_revisions(
    installation: TestInstallation, triggers: Watcher
) -> None:
    with installation.connect() as connection:
        connection.execute("UPDATE cronstream.coordinator_epoch SET etcd_identity = 'the old one', token = 1")
        installation.start("coordinator", "c1", **AUDITED)
        eventually(lambda: "was it wiped?" in installation.log_of("c1"), within=15)
        connection.execute(load("coordinator")["adopt_etcd"])
        job_id = insert(installation, "every-second", every="1 second")
        eventually(lambda: len(times_of(triggers, job_id)) >= 2, within=30)


def test_a_coordinator_of_another_installation_does_not_lead_here_and_says_whose_the_database_is(
    installation: TestInstallation,
) -> None:
    process = installation.start("coordinator", "c1", **AUDITED, installation="another")
    eventually(lambda: f"belongs to the installation {installation.name}" in installation.log_of("c1"), within=15)
    assert "adopt-etcd" not in installation.log_of("c1")
    assert process.poll() is None
    with installation.connect() as connection:
        assert connection.execute("SELECT token FROM cronstream.coordinator_epoch").fetchone() == (0,)


@pytest.mark.parametrize(
    "damage",
    [
        "anchor = 'infinity', every = '1 second'",
        "starts_at = '-infinity', ends_at = 'infinity', run_at = 'infinity', every = NULL",
        "every = '178000000 years'",
        "timeout_seconds = 'NaN'",
        "payload = jsonb_build_object('x', repeat('y', 3000000))",
        "cron = 'no such thing', every = NULL",
        "timezone = 'Nowhere'",
    ],
)
def test_a_row_written_around_the_triggers_stops_nothing_else(
    installation: TestInstallation, triggers: Watcher, damage: str
) -> None:
    installation.start("coordinator", "c1", **AUDITED)
    await_leader(installation)
    sound, bad = insert(installation, "sound", every="1 second"), insert(installation, "bad", every="1 second")
    eventually(lambda: len(times_of(triggers, bad)) >= 1, within=20)
    with installation.connect() as connection, connection.transaction():
        for trigger in ("aa_check_and_stamp", "tell_update"):
            connection.execute(f"ALTER TABLE cronstream.job_definitions DISABLE TRIGGER {trigger}")  # type: ignore[arg-type]
        connection.execute(
            f"UPDATE cronstream.job_definitions SET {damage}, revision = revision + 1 WHERE job_id = %s",  # type: ignore[arg-type]
            [bad],
        )
        connection.execute("ALTER TABLE cronstream.job_definitions ENABLE TRIGGER USER")
    with installation.connect() as connection:
        eventually(
            lambda: connection.execute("SELECT count(*) FROM cronstream.job_changes").fetchone() == (0,), within=20
        )
        count = len(times_of(triggers, sound))
        eventually(lambda: len(times_of(triggers, sound)) >= count + 3, within=20)
        assert installation.log_of("c1").count("took office") == 1
        connection.execute("DELETE FROM cronstream.job_definitions WHERE job_id = %s", [bad])
