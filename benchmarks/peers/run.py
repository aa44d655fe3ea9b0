"""Peers beside us: 1,000, 10,000 and 100,000 jobs due at one instant, on the same Postgres, one after another.

Like with like: what a peer *dispatches* (a message queued, a row deferred, a job handed to its pool)
is held against our dispatch (the broker's acknowledgement), what it *executes* against our end to end
(a worker's start). Peers that run jobs in the scheduler's own process do both at once. Each is watched
for a minute after the instant, in the usual run for twenty seconds; a size that it did not get through in
that time ends its turn, and its rate is that of the time it was watched.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks import end_to_end, installation, live
from benchmarks.measure import percentiles_ms
from benchmarks.peers import environment
from benchmarks.report import FOLDER, Report, Value, table
from stack import ports
from stack.home import Home

SIZES = (1_000, 10_000, 100_000)
_HERE = Path(__file__).parent.resolve()
Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Peer:
    """One way of running one scheduler: returns when each job fired, in microseconds since the epoch."""

    name: str
    does: str
    """dispatch, execute or both."""
    fire: Callable[[Home, int, float], tuple[float, Times]]


def run(report: Report, *, full: bool) -> None:
    """All peers, then ours, in one run; those that only run jobs elsewhere do so in the full one."""
    environment.prepare()
    home = installation.STACK.home
    for name, version in environment.versions().items():
        report.set(f"peers.version_{name}", version)
    rows: list[tuple[object, ...]] = []
    best: dict[str, float] = {}
    watch = 60.0 if full else 20.0
    for peer in PEERS:
        if peer.does == "execute" and not full:
            continue
        reached = True
        for size in SIZES:
            if not reached:
                rows.append((peer.name, peer.does, f"{size:,}", "not tried", None, None, None))
                continue
            at, times = peer.fire(home, size, watch)
            found = _figures(at, times, size)
            reached = len(times) >= size
            rows.append(_row(peer.name, peer.does, size, found))
            report.update(f"peers.{peer.name}.{peer.does}.{size}", found)
            # A peer that cannot do the largest size counts with what it fired at the largest it tried.
            if found["per_s"]:
                best[f"{peer.name}.{peer.does}"] = float(found["per_s"])
            print("  " + "  ".join(str(cell) for cell in rows[-1]), flush=True)
    ours = _ours(report, rows)
    table(
        f"jobs due at one instant, fired within {watch:.0f} s",
        ("scheduler", "what", "jobs", "fired", "fires/s", "p50 ms", "p99 ms"),
        rows,
    )
    for what, key in (("dispatch", "dispatch_ratio_to_best_peer"), ("execute", "end_to_end_ratio_to_best_peer")):
        peers = {name: rate for name, rate in best.items() if name.endswith((what, "both"))}
        if ours.get(what) and peers:
            strongest = max(peers, key=lambda name: peers[name])
            report.set(key, ours[what] / peers[strongest])
            report.set(f"peers.best_{what}", strongest)
            print(f"  {what}: {ours[what]:,.0f}/s, {ours[what] / peers[strongest]:.1f} times {strongest}", flush=True)


def _figures(at: float, times: Times, size: int) -> dict[str, Value]:
    times = np.sort(times)[:size]
    late = times - int(at * 1e6)
    if not late.size:
        return {"fired": 0, "per_s": None, "p50_ms": None, "p99_ms": None}
    values = percentiles_ms(late)
    return {
        "fired": int(late.size),
        "per_s": late.size / max(float(late[-1]) / 1e6, 0.001),
        "p50_ms": values["p50_ms"],
        "p99_ms": values["p99_ms"],
    }


def _row(name: str, does: str, size: int, found: Mapping[str, Value]) -> tuple[object, ...]:
    return (name, does, f"{size:,}", found["fired"], found["per_s"], found["p50_ms"], found["p99_ms"])


def _ours(report: Report, rows: list[tuple[object, ...]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for size in SIZES:
        at_us, late = live.fire_together(size)
        values = _figures(at_us / 1e6, late.astype(np.int64) + at_us, size)
        rows.append(_row("cronstream", "dispatch", size, values))
        report.update(f"peers.cronstream.dispatch.{size}", values)
        found["dispatch"] = float(values["per_s"] or 0)
    for size, (at_us, started) in end_to_end.fire_each(SIZES).items():
        values = _figures(at_us / 1e6, started, size)
        rows.append(_row("cronstream", "execute", size, values))
        report.update(f"peers.cronstream.execute.{size}", values)
        found["execute"] = float(values["per_s"] or 0)
    return found


# ---- each peer ---------------------------------------------------------------------------------


def _setup_seconds(size: int, per_job_us: float) -> float:
    return 8 + size * per_job_us / 1e6


def _apscheduler(home: Home, size: int, watch: float) -> tuple[float, Times]:
    at = float(int(time.time() + _setup_seconds(size, 250)))
    with installation.database(home) as database:
        url = (
            f"postgresql+psycopg2://cronstream:{home.secret('postgres_password')}@127.0.0.1:{home.port('postgres')}/"
            f"{database}"
        )
        return at, _python("apscheduler_peer", [str(size), str(at), str(at + watch)], {"PEER_URL": url})


def _procrastinate(mode: str) -> Callable[[Home, int, float], tuple[float, Times]]:
    def fire(home: Home, size: int, watch: float) -> tuple[float, Times]:
        # It knows whole minutes only, and must be up before one begins.
        # It asks croniter twice for each task before it waits for the next minute.
        at = (time.time() + _setup_seconds(size, 1500)) // 60 * 60 + 60.0
        with installation.database(home) as database:
            dsn = installation.postgres_dsn(home, database)
            return at, _python("procrastinate_peer", [mode, str(size), str(at), str(at + watch - 1)], {"PEER_DSN": dsn})

    return fire


def _java(kind: str) -> Callable[[Home, int, float], tuple[float, Times]]:
    def fire(home: Home, size: int, watch: float) -> tuple[float, Times]:
        at = float(int(time.time() + _setup_seconds(size, 120)))
        with installation.database(home) as database:
            url = f"jdbc:postgresql://127.0.0.1:{home.port('postgres')}/{database}"
            argv = ["java", "-Xmx1g", "-cp", environment.class_path(), "peers.Main", kind, str(size)]
            argv += [str(int(at * 1000)), str(int((at + watch) * 1000))]
            return at, _until_written(argv, {"JDBC_URL": url, "PGPASSWORD": home.secret("postgres_password")})

    return fire


def _redbeat(mode: str) -> Callable[[Home, int, float], tuple[float, Times]]:
    def fire(home: Home, size: int, watch: float) -> tuple[float, Times]:
        folder = FOLDER / "redis"
        folder.mkdir(parents=True, exist_ok=True)
        port = ports.choose()
        argv = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
        with (folder / "log").open("wb") as log:
            redis = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
        running = [redis]
        try:
            file = (FOLDER / "fires").resolve()
            for left in file.parent.glob("fires.*"):
                left.unlink()
            extra = {"PEER_REDIS": f"redis://127.0.0.1:{port}/0", "PEER_FILE": str(file)}
            time.sleep(0.5)
            at = float(int(time.time() + _setup_seconds(size, 1000)))
            subprocess.run(
                [str(environment.PYTHON.absolute()), "redbeat_peer.py", "load", str(size), str(at)],
                cwd=_HERE,
                env=_environment(extra),
                check=True,
            )
            celery = [str(environment.PYTHON.absolute()), "-m", "celery", "-A", "redbeat_peer"]
            at_work = [[*celery, "beat", "--loglevel=ERROR", "--pidfile="]]
            if mode == "execute":
                at_work.append([*celery, "worker", "--loglevel=ERROR", "--concurrency=2", "--without-gossip"])
            running += [_spawn(one, extra) for one in at_work]
            counted = _follow_queue(port, size, at + watch, mode, file)
        finally:
            for process in reversed(running):
                process.terminate()
            for process in reversed(running):
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    process.kill()
        return at, counted

    return fire


def _follow_queue(port: int, size: int, until: float, mode: str, file: Path) -> Times:
    """In mode dispatch the queue's length, a hundred times a second; else what the workers wrote."""
    import socket

    times: list[int] = []
    with socket.create_connection(("127.0.0.1", port)) as redis:
        while time.time() < until:
            time.sleep(0.01 if mode == "dispatch" else 0.5)
            if mode == "dispatch":
                redis.sendall(b"LLEN celery\r\n")
                length = int(redis.recv(64)[1:].split(b"\r")[0])
                times += [time.time_ns() // 1000] * (length - len(times))
                if length >= size:
                    break
            elif sum(one.stat().st_size for one in file.parent.glob("fires.*")) >= 17 * size:
                break
    if mode == "dispatch":
        return np.array(times, np.int64)
    time.sleep(0.2)
    lines = [line for one in file.parent.glob("fires.*") for line in one.read_text().split()]
    return np.array(lines, np.int64)


def _python(script: str, arguments: list[str], extra: Mapping[str, str]) -> Times:
    return _until_written([str(environment.PYTHON.absolute()), f"{script}.py", *arguments], extra)


def _until_written(argv: list[str], extra: Mapping[str, str]) -> Times:
    file = (FOLDER / "fires.txt").resolve()
    file.unlink(missing_ok=True)
    argv = [*argv, str(file)]
    if argv[0] == "java":
        argv[3] = ":".join(str(Path(part).absolute()) for part in argv[3].split(":"))
    process = _spawn(argv, extra)
    timer = threading.Timer(400, process.kill)
    timer.start()
    code = process.wait()
    timer.cancel()
    if code != 0 or not file.exists():
        log = (FOLDER / "logs" / "peer.log").read_text(errors="replace")
        print(f"  failed ({code}): {log.strip().splitlines()[-1] if log.strip() else ''}", file=sys.stderr)
        return np.empty(0, np.int64)
    return np.array(file.read_text().split(), np.int64)


def _spawn(argv: list[str], extra: Mapping[str, str]) -> subprocess.Popen[bytes]:
    log_file = FOLDER / "logs" / "peer.log"
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with log_file.open("wb") as log:
        return subprocess.Popen(argv, cwd=_HERE, env=_environment(extra), stdout=log, stderr=subprocess.STDOUT)


def _environment(extra: Mapping[str, str]) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("CRONSTREAM_", "PG"))}
    return {**clean, "PYTHONPATH": str(_HERE), "PYTHONDONTWRITEBYTECODE": "1", **extra}


PEERS = (
    Peer("apscheduler", "both", _apscheduler),
    Peer("redbeat", "dispatch", _redbeat("dispatch")),
    Peer("redbeat", "execute", _redbeat("execute")),
    Peer("procrastinate", "dispatch", _procrastinate("dispatch")),
    Peer("procrastinate", "execute", _procrastinate("execute")),
    Peer("db-scheduler", "both", _java("db-scheduler")),
    Peer("quartz", "both", _java("quartz")),
)
