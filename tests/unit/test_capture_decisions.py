"""The connector's configuration and the watchdog's verdicts: pure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from connectors.config import TEMPLATE, connector_config, connector_name, slot_name
from connectors.seen import Observation, Progress, Slot, Status
from connectors.verdict import RESTARTS_BEFORE_ANEW, Action, Memory, verdict
from cronstream.settings import CaptureSettings, SettingsError

WELL = Observation(True, Status("RUNNING", "RUNNING"), True, Slot(True, "reserved", 0), 1.0)
LONG_AGO = Memory()
FAILED = Status("RUNNING", "FAILED", "java.lang.Boom: it broke\n\tat a.b(C.java:1)\nCaused by: why\n\t... 7 more")


def seen(**changes: object) -> Observation:
    values = {name: getattr(WELL, name) for name in WELL.__slots__}
    return Observation(**{**values, **changes})


def settings(**changes: object) -> CaptureSettings:
    values = {
        "postgres": "host=db port=6000 dbname=app user=cdc",
        "kafka": "k:1",
        "etcd": "e:1",
        "connect": "http://c:8083",
        "connect_secrets": "/run/secrets/connect.properties",
    }
    return CaptureSettings.model_validate({**values, **changes})


def test_the_configuration_is_the_template_with_the_installation_filled_in() -> None:
    config = connector_config(settings(installation="north-1", capture_heartbeat_seconds=0.5))
    assert config["database.hostname"] == "db"
    assert config["database.port"] == "6000"
    assert config["database.dbname"] == "app"
    assert config["slot.name"] == "north_1_capture"
    assert config["topic.prefix"] == "north-1"
    assert config["transforms.oneTopic.replacement"] == "north-1.changes"
    assert config["heartbeat.interval.ms"] == "500"
    assert not [text for text in config.values() if "@" in text]


def test_connect_may_reach_postgres_by_another_way() -> None:
    config = connector_config(settings(capture_postgres_host="postgres", capture_postgres_port=5432))
    assert (config["database.hostname"], config["database.port"]) == ("postgres", "5432")


def test_no_secret_is_in_the_configuration(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("hunter2hunter2")
    config = connector_config(settings(postgres_password_file=password))
    assert "hunter2" not in json.dumps(config)
    assert config["database.password"] == "${file:/run/secrets/connect.properties:postgres.password}"
    assert "password" not in json.loads(TEMPLATE.read_text())["database.password"].lower().replace(
        "@postgres_password@", ""
    )


@pytest.mark.parametrize("missing", [{"connect_secrets": None}, {"postgres": "dbname=app user=cdc"}])
def test_settings_that_say_too_little_are_named(missing: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match="CRONSTREAM_"):
        connector_config(settings(**missing))


def test_names_hang_off_the_installation() -> None:
    assert connector_name(settings(installation="a-b")) == "a-b-capture"
    assert slot_name(settings(installation="a-b")) == "a_b_capture"


def test_nothing_is_done_while_all_is_well() -> None:
    decided = verdict(WELL, LONG_AGO, 10)
    assert decided.healthy
    assert decided.action is Action.NOTHING


@pytest.mark.parametrize(
    ("changes", "action"),
    [
        ({"status": None}, Action.REGISTER),
        ({"status": FAILED}, Action.RESTART_FAILED),
        ({"status": Status("FAILED", None, "x")}, Action.RESTART_FAILED),
        ({"status": Status("STOPPED", None)}, Action.RESUME),
        ({"slot": None}, Action.BEGIN_ANEW),
        ({"slot": None, "status": FAILED}, Action.BEGIN_ANEW),
        ({"slot": Slot(False, "lost", 0)}, Action.BEGIN_ANEW),
        ({"heartbeat_age_seconds": 11.0}, Action.RESTART_ALL),
        ({"heartbeat_age_seconds": None}, Action.RESTART_ALL),
        ({"heartbeat_age_seconds": 90.0, "still_seconds": 11.0}, Action.RESTART_ALL),
        ({"heartbeat_age_seconds": 90.0, "still_seconds": 2.0}, Action.NOTHING),
        ({"heartbeat_age_seconds": 90.0, "still_seconds": 2.0, "status": Status("RUNNING", None)}, Action.RESTART_ALL),
        ({"connect_answers": False, "status": None}, Action.NOTHING),
        ({"postgres_answers": False, "slot": None, "status": FAILED}, Action.NOTHING),
        ({"slot": Slot(True, "unreserved", 0)}, Action.NOTHING),
    ],
)
def test_each_trouble_has_its_step_and_none_is_called_healthy(changes: dict[str, object], action: Action) -> None:
    decided = verdict(seen(**changes), LONG_AGO, 10)
    assert decided.action is action
    assert decided.reason
    assert not decided.healthy


def test_a_connector_that_was_just_started_is_given_time() -> None:
    fresh = Memory(since_action_seconds=3.0)
    for changes in ({"slot": None}, {"heartbeat_age_seconds": None}, {"status": Status("RUNNING", None)}):
        assert verdict(seen(**changes), fresh, 10).action is Action.NOTHING


IDLE = Slot(True, "reserved", 5_000_000, confirmed=100)
DECODING = Slot(True, "reserved", 5_000_000, confirmed=100, decoding=True)
FURTHER = Slot(True, "reserved", 1_000_000, confirmed=200)


@pytest.mark.parametrize(
    ("delivered", "slot", "moved"),
    [(0, IDLE, False), (0, None, False), (1, IDLE, True), (1, None, True), (0, DECODING, True), (0, FURTHER, True)],
)
def test_a_row_a_position_and_a_process_at_work_are_progress(delivered: int, slot: Slot | None, *, moved: bool) -> None:
    progress = Progress()
    assert progress.moved_us(0, IDLE, 1_000) is None, "where it stands at first says nothing"
    assert progress.moved_us(delivered, slot, 2_000) == (2_000 if moved else None)
    assert progress.moved_us(0, slot if slot is not DECODING else IDLE, 3_000) == (2_000 if moved else None)


def test_a_million_rows_decoded_for_minutes_are_no_standstill() -> None:
    progress, memory, actions = Progress(), LONG_AGO, set()
    for second in range(0, 300, 2):
        decoding = second < 200  # then it delivers what it decoded, and last a heartbeat
        moved_us = progress.moved_us(int(second >= 200), DECODING if decoding else IDLE, second * 1_000_000)
        still = None if moved_us is None else second - moved_us / 1e6
        decided = verdict(seen(heartbeat_age_seconds=float(second), still_seconds=still), memory, 10)
        actions.add(decided.action)
        memory = memory.passed(2).did(decided)
    assert actions == {Action.NOTHING}


def test_restarts_are_paced_and_end_in_a_new_beginning() -> None:
    memory, waits = LONG_AGO, []
    for _ in range(RESTARTS_BEFORE_ANEW):
        waited = 0
        while (decided := verdict(seen(status=FAILED), memory, 10)).action is Action.NOTHING:
            memory = memory.passed(1)
            waited += 1
        assert decided.action is Action.RESTART_FAILED
        waits.append(waited)
        memory = memory.did(decided)
    assert waits == [0, 2, 4, 8, 16]
    assert verdict(seen(status=FAILED), memory.passed(60), 10).action is Action.BEGIN_ANEW


def test_a_failed_connector_without_slot_begins_anew_at_once_and_then_ever_more_seldom() -> None:
    trouble, memory, waits = seen(status=FAILED, slot=None), Memory(since_action_seconds=3), []
    for _ in range(6):
        waited = 0
        while (decided := verdict(trouble, memory, 10)).action is Action.NOTHING:
            memory = memory.passed(1)
            waited += 1
        assert decided.action is Action.BEGIN_ANEW
        waits.append(waited)
        memory = memory.did(decided)
    assert waits == [0, 4, 8, 16, 30, 30]


def test_a_heartbeat_wipes_the_failures_out() -> None:
    tired = Memory(restarts=4, beginnings=2, since_action_seconds=60)
    assert tired.did(verdict(WELL, tired, 10)) == Memory(since_action_seconds=60)


def test_the_reason_is_the_trace_without_its_stack() -> None:
    assert FAILED.reason == "java.lang.Boom: it broke / Caused by: why"
