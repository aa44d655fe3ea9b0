"""The servers' own faults: restarts, outages, capture in all its ways to break."""

from __future__ import annotations

import psycopg

from connectors.config import connector_config, connector_name, slot_name
from connectors.connect_api import ConnectApi, ConnectUnavailable
from cronstream.settings import CaptureSettings, read_settings
from stack import servers
from tests.faults.faults.scene import Disturb, Hit, Scene


def restart(name: str, scene: Scene) -> Hit:
    """In order, on the same data."""
    servers.stop(scene.cluster.home, name)
    scene.bring(name)
    return Hit(name)


def crash(name: str, scene: Scene) -> Hit:
    """SIGKILL, away for a while, then back on the same data."""
    servers.kill(scene.cluster.home, name)
    seconds = scene.sleep(0.5, scene.longest_outage)
    scene.bring(name)
    return Hit(name, f"away for {seconds:.1f} s")


def fail_task(scene: Scene) -> Hit:
    """The connector's task fails and stays failed until the watchdog, stopped meanwhile, looks again."""
    api, settings = _connect(scene)
    scene.cluster.pause("capture")
    try:
        broken = {**connector_config(settings), "publication.name": "nobody_made_this"}
        api.put_config(connector_name(settings), broken)

        def failed() -> bool:
            try:
                status = api.status(connector_name(settings))
            except ConnectUnavailable:
                return False
            return status is not None and status.task == "FAILED"

        scene.wait(failed, 30, "the task fails", every=0.2)
    finally:
        scene.cluster.resume("capture")
    return Hit("connector", "FAILED, then left to the watchdog")


def drop_slot(scene: Scene) -> Hit:
    """Connect is killed and the slot dropped; a DELETE that commits meanwhile is in nobody's stream."""
    _, settings = _connect(scene)
    slot, workload = slot_name(settings), scene.workload
    servers.kill(scene.cluster.home, "connect")
    with scene.cluster.connect() as connection:

        def dropped() -> bool:
            try:
                connection.execute(
                    "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots"
                    " WHERE slot_name = %s AND active_pid IS NOT NULL",
                    [slot],
                )
                connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
            except psycopg.errors.ObjectInUse:
                return False
            return True

        scene.wait(dropped, 20, "the slot is dropped", every=0.2)
    with workload.lock:
        victims = [job_id for job_id, name in workload.names.items() if name.startswith("second-")]
        victims = [job_id for job_id in victims if job_id in workload.rules]
        if victims:
            workload.transact(delete=[scene.random.choice(victims)])
    scene.bring("connect")
    return Hit("slot", f"dropped, {len(victims[:1])} job deleted meanwhile")


def forget_offsets(scene: Scene) -> Hit:
    """Connect no longer knows how far it was: what it reads again must bring nothing old back."""
    api, settings = _connect(scene)
    name = connector_name(settings)

    def state(wanted: str) -> bool:
        try:
            status = api.status(name)
        except ConnectUnavailable:
            return False
        return status is not None and status.connector == wanted

    def forgotten() -> bool:
        try:
            api.forget_offsets(name)
        except ConnectUnavailable:
            return False
        return True

    scene.cluster.pause("capture")
    try:
        api.stop(name)
        scene.wait(lambda: state("STOPPED"), 30, "the connector is stopped", every=0.2)
        scene.wait(forgotten, 30, "its offsets are forgotten", every=0.2)
        api.resume(name)
        scene.wait(lambda: state("RUNNING"), 30, "the connector runs", every=0.2)
    finally:
        scene.cluster.resume("capture")
    return Hit("connector", "began without offsets")


def capture_outage(scene: Scene) -> Hit:
    """Connect and its watchdog are both gone while users go on editing."""
    scene.cluster.kill("capture")
    servers.kill(scene.cluster.home, "connect")
    before = scene.workload.edits
    seconds = scene.sleep(scene.longest_outage * 0.95, scene.longest_outage)
    scene.bring("connect")
    scene.cluster.start("capture")
    return Hit("capture", f"away for {seconds:.1f} s and {scene.workload.edits - before} edits")


def _connect(scene: Scene) -> tuple[ConnectApi, CaptureSettings]:
    environment = {**scene.cluster.home.environment(), **scene.cluster.settings_of("capture")}
    settings = read_settings(CaptureSettings, {k: v for k, v in environment.items() if k.startswith("CRONSTREAM_")})
    assert settings.connect is not None
    return ConnectApi(settings.connect), settings


def _restart(name: str) -> Disturb:
    return lambda scene: restart(name, scene)


def _crash(name: str) -> Disturb:
    return lambda scene: crash(name, scene)


FAULTS: dict[str, Disturb] = {
    **{f"restart {name}": _restart(name) for name in ("kafka", "postgres")},
    **{f"crash {name}": _crash(name) for name in ("kafka", "postgres", "connect")},
    "fail the connector's task": fail_task,
    "drop the slot": drop_slot,
    "forget capture's offsets": forget_offsets,
    "capture outage": capture_outage,
}
