"""One run: fresh servers, a fleet, users, faults; then rest, and the verdict."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import psycopg

from cronstream.clock import SystemClock
from stack import ports, process
from stack.paths import CHECKOUT, LOCAL, VENV_PYTHON
from tests.faults.cluster import Cluster, NotRecovered
from tests.faults.collector import Collector
from tests.faults.commander import Commander
from tests.faults.events import Figure, Row, Stuck, Window
from tests.faults.faults import Scene
from tests.faults.history import History, Recorder
from tests.faults.nemesis import recover, sequence, strike
from tests.faults.verdict import Verdict
from tests.faults.workload import Workload
from tests.faults.zones import jumps_at, make_tzdata

log = logging.getLogger("faults")

HOME = LOCAL / "faults" / "home"
KEPT = LOCAL / "faults" / "histories"
TZDATA = LOCAL / "faults" / "tzdata"
CHANGE_AFTER_SECONDS = 180
"""The clocks change once the run is under way."""
REST_WITHIN = 240.0
QUIET_SECONDS = 6.0
"""Longer than the workload's longest backoff."""
SAMPLE_SECONDS = 10.0
_ROWS = """
SELECT job_id, cronstream.us(scheduled_time), request_id, attempt, outcome, reason, cronstream.us(first_time),
       run_count, coalesce(fencing_token, 0)
FROM cronstream.job_runs
"""


@dataclass(frozen=True)
class Plan:
    """What a run is made of; equal plans make equal fleets and sequences of faults."""

    seed: int
    minutes: float
    """Of faults: setting up and coming to rest take a minute or two more."""
    faults: tuple[str, ...] | None = None
    """None: all there are, again and again until the minutes are over."""
    scale: float = 1.0
    longest_pause: float = 12.0
    longest_outage: float = 10.0


def run(plan: Plan) -> tuple[Verdict, Path]:
    """Run, judge, and keep the history; returns the verdict and the history's file."""
    clock = SystemClock()
    file = KEPT / f"{clock.wall_us() // 1_000_000}-seed-{plan.seed}.jsonl"
    recorder = Recorder(file)
    cluster = Cluster(HOME, recorder)
    random = Random(plan.seed)
    from_us = clock.wall_us()
    jumps = jumps_at(from_us + CHANGE_AFTER_SECONDS * 1_000_000)
    cluster.settings_of_coordinators["PYTHONPATH"] = str(make_tzdata(TZDATA, jumps))
    executions = file.with_suffix(".executions")
    with cluster.running(), _receiver(cluster, executions) as target:
        collector = Collector(f"127.0.0.1:{cluster.home.port('kafka')}", cluster.topics, 4, recorder)
        collector.start()
        workload = Workload(cluster, target, Random(random.random()))
        scene = Scene(cluster, workload, collector, random, plan.longest_pause, plan.longest_outage)
        recorder.record(*jumps)
        workload.begin(plan.minutes, plan.scale)
        never_edited = [name for name in workload.names.values() if name.startswith("every-minute-")]
        commander = Commander(cluster, never_edited, Random(plan.seed))
        try:
            recover(scene, "the start")
            log.info("the fleet is at work: %d jobs", len(workload.rules))
            workload.start()
            commander.start()
            _faults(plan, scene)
        except NotRecovered as stuck:
            log.error("%s", stuck)
            recorder.record(Stuck(clock.wall_us(), str(stuck)))
        workload.stop()
        commander.stop()
        until_us = workload.pause_all()
        settled = _rest(scene)
        recorder.record(Figure(clock.wall_us(), "edits", workload.edits))
        recorder.record(*_rows(cluster), *commander.requests())
        workload.close()
        collector.stop()
    recorder.record(Window(from_us, until_us, plan.seed, plan.minutes, settled))
    recorder.close()
    with file.open("ab") as out:
        out.write(executions.read_bytes())
    executions.unlink()
    return Verdict.of(History.read(file)), file


def _faults(plan: Plan, scene: Scene) -> None:
    clock = scene.cluster.clock
    ends_ns = clock.boot_ns() + round(plan.minutes * 60e9)
    sampled_ns = 0
    for name in sequence(scene.random, plan.faults):
        if clock.boot_ns() >= ends_ns:
            break
        strike(scene, name)
        scene.sleep(1, 4)
        if clock.boot_ns() - sampled_ns > SAMPLE_SECONDS * 1e9:
            _sample(scene.cluster)
            sampled_ns = clock.boot_ns()


def _sample(cluster: Cluster) -> None:
    """Memory and open files of every process."""
    now = cluster.clock.wall_us()
    for node in cluster.nodes:
        identity = process.running(cluster.home.pid_file(node))
        if identity is None:
            continue
        try:
            files = sum(1 for _ in Path(f"/proc/{identity.pid}/fd").iterdir())
        except OSError:
            continue
        megabytes = process.resident_bytes(identity) / 2**20
        cluster.recorder.record(Figure(now, f"megabytes {node}", megabytes), Figure(now, f"files {node}", files))


def _rest(scene: Scene) -> bool:
    """Whether everything that was published came to its end, and history has it."""
    collector, cluster = scene.collector, scene.cluster

    def at_rest() -> bool:
        return collector.quiet_seconds > QUIET_SECONDS and collector.open == 0 and _planned(cluster)

    try:
        cluster.wait(at_rest, REST_WITHIN, "all that was admitted has its end", every=0.5)
        return True
    except NotRecovered as error:
        log.error("%s: %d attempts are open", error, collector.open)
        return False


def _planned(cluster: Cluster) -> bool:
    try:
        open_edits: int = cluster.query("SELECT count(*) FROM cronstream.job_changes")[0][0]
    except psycopg.OperationalError:
        return False
    return open_edits == 0


def _rows(cluster: Cluster) -> Iterator[Row]:
    return (Row(*row) for row in cluster.query(_ROWS))


@contextmanager
def _receiver(cluster: Cluster, file: Path) -> Iterator[str]:
    port = cluster.home.port("receiver")
    with (cluster.home.logs / "receiver.log").open("ab") as out:
        target = subprocess.Popen(
            [str(VENV_PYTHON), "-m", "tests.faults.receiver", str(port), str(file)],
            cwd=CHECKOUT,
            stdout=out,
            stderr=out,
        )
    try:
        cluster.wait(lambda: ports.serves(port, "/health"), 20, "the receiver answers")
        yield f"http://127.0.0.1:{port}"
    finally:
        target.terminate()
        target.wait(10)
