"""The coordinator as a process on the real stack: burst, herd, steady, takeover, edits, bulk edits.

Lateness is the leader's own: its clock when the broker has acknowledged the
commit of the transaction, minus the scheduled time. Every trigger is counted,
none is sampled (see leader.py).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg

from benchmarks import fleet, installation, leader, plots
from benchmarks.installation import Bench, Poller, until
from benchmarks.measure import Processors, percentiles_ms, resident_bytes
from benchmarks.report import Report, Value, table

RATE = 8_300
_BURST_SECONDS = 5
_BURST_EACH = 50_000
_HERD = 250_000
_AHEAD = (20, 40, 100, 220)
_SECOND = 1_000_000
_PERCENTILES = ("p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms")
Latenesses = npt.NDArray[np.int32]

curves: dict[str, Latenesses] = {}
"""What this run has measured, for the picture with all of it."""


@contextmanager
def made() -> Iterator[Bench]:
    """An installation for one scenario."""
    with Bench.made(installation.STACK.home) as bench:
        yield bench


class TooLate(Exception):
    """Setting up took until after the instant: it is to be tried again with more time."""


def burst(report: Report, *, full: bool) -> None:
    """50,000 due at each of five whole seconds, advances on."""
    _with_time("burst", report, _BURST_SECONDS * _BURST_EACH, _BURST_SECONDS)


def herd(report: Report, *, full: bool) -> None:
    """250,000 due at one instant, advances on."""
    _with_time("herd", report, _HERD, 1)


def _with_time(name: str, report: Report, count: int, seconds: int) -> None:
    for ahead in _AHEAD[1:]:
        with made() as bench:
            at_us = _whole_second(ahead)
            try:
                _due_together(bench, report, name, count, [at_us + turn * _SECOND for turn in range(seconds)])
            except TooLate as late:
                print(f"  {late}", flush=True)
            else:
                return
    raise TooLate(f"{name}: not set up {_AHEAD[-1]} s ahead either")


def _due_together(bench: Bench, report: Report, name: str, count: int, instants: list[int]) -> None:
    with bench.connect() as connection:
        fleet.insert_aligned(connection, count, instants)
    if time.time() + 15 > instants[0] / 1e6:
        raise TooLate("the rows took too long to write: again, with more time")
    pid = bench.lead()
    loaded = bench.until_loaded()
    spare = instants[0] / 1e6 - time.time()
    if spare < 3:
        raise TooLate(f"loading took {loaded:.1f} s, {spare:.1f} s were left: again, with more time")
    processors, poller = None, Poller(bench)
    _sleep_until(instants[0] / 1e6 - 1)
    processors = Processors(installation.server_pids(bench.home) | {"leader": pid})
    _sleep_until(instants[-1] / 1e6 + 0.5)
    shares = None
    until(lambda: _published(bench) >= count, within=60, every=0.1, says=bench.tail("c1"))
    shares = processors.shares()
    until(lambda: bench.figures().get("writes_waiting") == 0, within=120, every=0.05)
    gone = time.time() - instants[-1] / 1e6
    answers = poller.close()
    late, per_second = _recorded(bench)
    assert late.size == count, (late.size, count)
    curves[name] = late
    values = percentiles_ms(late)
    drained_s = float(late.max()) / 1e6
    report.set(f"{name}_p99_ms", values["p99_ms"])
    if name == "burst":
        report.set("burst_backlog_gone_s", gone)
    report.update(name, values)
    report.update(name, {"count": count, "backlog_gone_s": gone, "load_s": loaded, "loaded_per_s": count / loaded})
    report.update(name, {f"cores_{who}": share for who, share in shares.items()})
    report.set(f"{name}.processes", _PROCESSES)
    plots.over_time(
        f"{name}_over_time",
        per_second,
        [(at, figures.get("oldest_write_seconds", 0.0)) for at, figures in answers],
        f"{count:,} triggers due at {len(instants)} whole second{'s' if len(instants) > 1 else ''}",
    )
    plots.lateness_cdf(curves)
    table(
        f"{name}: {count:,} jobs due at {len(instants)} instant(s), advances on",
        (*_PERCENTILES, "last after s", "advances done after s", "load s", "leader cores", "others"),
        [(*(values[key] for key in _PERCENTILES), drained_s, gone, loaded, shares["leader"], shares["others"])],
    )


def fire_together(count: int) -> tuple[int, Latenesses]:
    """``count`` jobs due at one instant, nothing else: the instant and each one's lateness."""
    for ahead in _AHEAD:
        if ahead < 10 + count / 4_000:
            continue
        try:
            with made() as bench:
                return _fire_together(bench, count, ahead)
        except TooLate as late:
            print(f"  {late}", flush=True)
    raise TooLate(f"{count:,} jobs: not set up {_AHEAD[-1]} s ahead either")


def _fire_together(bench: Bench, count: int, ahead: float) -> tuple[int, Latenesses]:
    at_us = _whole_second(ahead)
    with bench.connect() as connection:
        fleet.insert_aligned(connection, count, [at_us])
    bench.lead()
    bench.until_loaded()
    if time.time() > at_us / 1e6:
        raise TooLate("the set-up took too long: again, with more time")
    until(lambda: _published(bench) >= count, within=90, every=0.1, says=bench.tail("c1"))
    return at_us, _recorded(bench)[0]


def steady(report: Report, *, full: bool) -> None:
    """8,300/s with phases spread, a minute long."""
    jobs = 500_000
    with made() as bench:
        start_us = _whole_second(90)
        with bench.connect() as connection:
            sped_up = fleet.insert_spread(connection, jobs, RATE, start_us)
        lead_steadily(bench, report, "steady", jobs=jobs, seconds=60, start_us=start_us, sped_up=sped_up)


def lead_steadily(
    bench: Bench, report: Report, name: str, *, jobs: int, seconds: float, start_us: int, sped_up: float
) -> None:
    """Start the leader, let it load, and measure its steady state from ten seconds after the first instant on."""
    pid = bench.lead()
    loaded = bench.until_loaded(within=600)
    poller = Poller(bench)
    first = max(start_us / 1e6, time.time()) + 10
    _sleep_until(first)
    processors = Processors(installation.server_pids(bench.home) | {"leader": pid})
    _sleep_until(first + seconds)
    shares = processors.shares()
    figures = bench.figures()
    memory = resident_bytes(pid)
    answers = poller.close()
    late, per_second = _recorded(bench, int(first), int(first + seconds))
    curves[name] = late
    values = percentiles_ms(late)
    rate = late.size / (int(first + seconds) - int(first))
    prefix = "" if name == "steady" else "full_"
    for key in ("p50_ms", "p99_ms", "p999_ms"):
        report.set(f"{prefix}steady_{key}", values[key])
    if name == "steady":
        report.set("steady_leader_cpu_share", shares["leader"])
    oldest = max((figure.get("oldest_write_seconds", 0.0) for _, figure in answers), default=0.0)
    report.update(name, values)
    report.update(
        name,
        {
            "jobs": jobs,
            "per_s": rate,
            "seconds": seconds,
            "load_s": loaded,
            "in_wheel": figures.get("loaded"),
            "leader_resident_mb": memory / 1e6,
            "oldest_advance_s": oldest,
            "sped_up": sped_up,
            "processes": _PROCESSES,
        },
    )
    report.update(name, {f"cores_{who}": share for who, share in shares.items()})
    plots.over_time(
        f"{name}_over_time",
        per_second,
        [(at, figure.get("oldest_write_seconds", 0.0)) for at, figure in answers],
        f"{jobs:,} jobs, {RATE:,} triggers a second",
    )
    plots.lateness_cdf(curves)
    table(
        f"{name}: {jobs:,} jobs of the fleet sped up {sped_up:.0f} times, {seconds:.0f} s",
        (
            "triggers/s",
            *_PERCENTILES,
            "leader cores",
            "postgres",
            "kafka",
            "others",
            "oldest advance s",
            "MB",
            "load s",
        ),
        [
            (
                rate,
                *(values[key] for key in _PERCENTILES),
                shares["leader"],
                shares["postgres"],
                shares["kafka"],
                shares["others"],
                oldest,
                memory / 1e6,
                loaded,
            )
        ],
    )


def takeover(report: Report, *, full: bool) -> None:
    """SIGKILL for the leader of a steady fleet: how long until the next one's first trigger."""
    with made() as bench:
        found = measure_takeover(bench, jobs=200_000, rate=2_000)
    report.set("takeover_first_trigger_s", found["first_trigger_s"])
    report.set("takeover_gap_s", found["gap_s"])
    report.update("takeover", found)
    table(
        "takeover: SIGKILL of the leader of 200,000 jobs at 2,000/s, lease of 5 s",
        ("from office to first trigger s", "kill to first trigger s", "office to whole horizon s"),
        [(found["first_trigger_s"], found["gap_s"], found["horizon_s"])],
    )


def measure_takeover(bench: Bench, *, jobs: int, rate: float) -> dict[str, Value]:
    """Two coordinators; the one that leads is killed once it has published for a while."""
    start_us = _whole_second(25)
    with bench.connect() as connection:
        fleet.insert_spread(connection, jobs, rate, start_us)
    bench.lead("c1")
    bench.until_loaded("c1", within=300)
    bench.lead("c2")
    until(lambda: bench.figures("c2"), within=20)
    _sleep_until(start_us / 1e6 + 3)
    until(lambda: _published(bench, "c1") > rate, within=60, every=0.1)
    return follow_kill(bench)


def follow_kill(bench: Bench) -> dict[str, Value]:
    """Kill c1, follow c2 until it has loaded its whole horizon."""
    killed = time.time()
    bench.kill("c1")
    until(lambda: bench.figures("c2").get("first_publish_seconds"), within=60, every=0.02)
    gap = time.time() - killed
    until(lambda: bench.figures("c2").get("loaded_through"), within=300, every=0.05)
    figures = bench.figures("c2")
    time.sleep(3)
    late, _ = _recorded(bench, node="c2")
    return {
        "first_trigger_s": figures["first_publish_seconds"],
        "gap_s": gap,
        "horizon_s": figures["seconds_in_office"],
        "loaded": figures["loaded"],
        "latest_trigger_ms": float(late.max()) / 1000,
        "processes": "two coordinators, the four servers; no streams, no workers",
    }


def edits(report: Report, *, full: bool) -> None:
    """100 edits a second through capture, each its own transaction, for half a minute."""
    rate, seconds = 100, 30
    with made() as bench:
        with bench.connect() as connection:
            fleet.insert_rows(connection, 1, 2_000, "1 minute")
        bench.start("connectors-1", "connectors")
        pid = bench.lead()
        bench.until_loaded()
        _until_captured(bench)
        processors = Processors(installation.server_pids(bench.home) | {"leader": pid})
        armed_before = _armed(bench).size
        _edit_at(bench, rate, seconds)
        with contextlib.suppress(TimeoutError):  # what is not armed by then is missing from the count
            until(lambda: _armed(bench).size - armed_before >= rate * seconds, within=20, every=0.2)
        shares = processors.shares()
        figures = bench.figures()
        late = _armed(bench)[armed_before:]
    values = percentiles_ms(late)
    report.set("edit_to_armed_p50_ms", values["p50_ms"])
    report.set("edit_to_armed_p99_ms", values["p99_ms"])
    report.update("edits", values)
    report.update("edits", {"count": int(late.size), "capture_missed": figures.get("capture_missed")})
    report.update("edits", {f"cores_{who}": share for who, share in shares.items()})
    report.set("edits.processes", "coordinator, capture, the four servers; no streams, no workers")
    table(
        f"edits: {rate} UPDATEs a second, from commit to held in the wheel, through Debezium",
        ("edits", *_PERCENTILES, "missed by capture", "leader cores", "connect", "others"),
        [
            (
                int(late.size),
                *(values[key] for key in _PERCENTILES),
                figures.get("capture_missed"),
                shares["leader"],
                shares["connect"],
                shares["others"],
            )
        ],
    )


def bulk(report: Report, *, full: bool) -> None:
    """One INSERT and one UPDATE of 100,000 jobs through capture, while 1,000 triggers a second are due."""
    count = 100_000
    with made() as bench:
        start_us = _whole_second(1)
        with bench.connect() as connection:
            fleet.insert_spread(connection, 100_000, 1_000, start_us)
            bench.start("connectors-1", "connectors")
            pid = bench.lead()
            bench.until_loaded()
            _until_captured(bench)
            time.sleep(5)
            statements = (
                ("insert", lambda: fleet.insert_rows(connection, 1, count, "2 minutes", "bulk")),
                (
                    "update",
                    lambda: _execute(
                        connection, "UPDATE cronstream.job_definitions SET every = '3 minutes' WHERE tenant = 'bulk'"
                    ),
                ),
                (
                    "pause",
                    lambda: _execute(
                        connection, "UPDATE cronstream.job_definitions SET enabled = false WHERE tenant = 'bulk'"
                    ),
                ),
            )
            rows = []
            for name, statement in statements:
                processors = Processors(installation.server_pids(bench.home) | {"leader": pid})
                first = time.time()
                statement()
                committed = time.time()
                until(lambda: _open_changes(connection) == 0, within=300, every=0.2, says=bench.tail("c1"))
                planned = time.time() - committed
                shares = processors.shares()
                late, _ = _recorded(bench, int(first), int(time.time()) + 1)
                values = percentiles_ms(late)
                figures = bench.figures()
                rows.append(
                    (
                        name,
                        committed - first,
                        planned,
                        count / planned,
                        values["p50_ms"],
                        values["p99_ms"],
                        figures["capture_missed"],
                        shares["leader"],
                        shares["postgres"],
                        shares["others"],
                    )
                )
                report.update(
                    f"bulk.{name}",
                    {
                        "statement_s": committed - first,
                        "planned_s": planned,
                        "due_p99_ms": values["p99_ms"],
                        "capture_missed": figures["capture_missed"],
                        "cores_leader": shares["leader"],
                        "cores_postgres": shares["postgres"],
                    },
                )
                if name == "update":
                    report.set("bulk_update_100k_armed_s", planned)
                    report.set("bulk_update_due_p99_ms", values["p99_ms"])
    report.set("bulk.processes", "coordinator, capture, the four servers; no streams, no workers")
    table(
        f"bulk edits of {count:,} jobs while 1,000 triggers a second are due",
        (
            "statement",
            "took s",
            "planned after s",
            "jobs/s",
            "due p50 ms",
            "due p99 ms",
            "missed",
            "leader",
            "postgres",
            "others",
        ),
        rows,
    )


_PROCESSES = "one coordinator, the four servers (connect idle); no capture, no streams, no workers"


def _whole_second(ahead: float) -> int:
    return int(time.time() + ahead) * _SECOND


def _sleep_until(at: float) -> None:
    time.sleep(max(0.0, at - time.time()))


def _published(bench: Bench, node: str = "c1") -> int:
    return int(bench.figures(node).get("published", 0))


def _recorded(bench: Bench, first: int = 0, end: int = 2**62, node: str = "c1") -> tuple[Latenesses, dict[int, int]]:
    """All latenesses acknowledged in [first, end), and how many in each second."""
    by_second = leader.read(bench.record(node).with_suffix(".lateness"))
    chosen = {second: parts for second, parts in by_second.items() if first <= second < end}
    parts = [part for second in sorted(chosen) for part in chosen[second]]
    late = np.concatenate(parts) if parts else np.empty(0, np.int32)
    return late, {second: sum(map(len, parts)) for second, parts in chosen.items()}


def _armed(bench: Bench) -> Latenesses:
    by_second = leader.read(bench.record().with_suffix(".armed"))
    parts = [part for second in sorted(by_second) for part in by_second[second]]
    return np.concatenate(parts) if parts else np.empty(0, np.int32)


def _execute(connection: psycopg.Connection[Any], statement: str) -> None:
    connection.execute(statement)  # type: ignore[arg-type]


def _open_changes(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT count(*) FROM cronstream.job_changes").fetchone()
    assert row is not None
    return int(row[0])


def _until_captured(bench: Bench) -> None:
    """An edit must have come through Debezium, quicker than the audit finds it, and no others be open."""
    with bench.connect() as connection:
        until(lambda: _open_changes(connection) == 0, within=120, every=0.2)

        def quick() -> bool:
            began = time.monotonic()
            connection.execute(
                """UPDATE cronstream.job_definitions SET catch_up_limit = catch_up_limit + 1
                   WHERE job_id = (SELECT min(job_id) FROM cronstream.job_definitions)"""
            )
            until(lambda: _open_changes(connection) == 0, within=60, every=0.02)
            return time.monotonic() - began < 0.7

        until(quick, within=120, every=0.3, says="capture delivers")
        for _ in range(3):
            until(quick, within=30, every=0.3, says="capture delivers")


def _edit_at(bench: Bench, rate: int, seconds: int) -> None:
    """Single-row UPDATEs at an even pace, from two connections."""

    def edit(lane: int) -> None:
        with bench.connect() as connection:
            began = time.monotonic()
            for number in range(lane, rate * seconds, 2):
                time.sleep(max(0.0, began + number / rate - time.monotonic()))
                connection.execute(
                    """UPDATE cronstream.job_definitions SET every = make_interval(secs => %s)
                       WHERE name = %s AND tenant = 'edits'""",
                    [61 + number % 49, f"job-{1 + number % 2_000}"],
                )

    lanes = [threading.Thread(target=edit, args=(lane,)) for lane in range(2)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
