"""The acts of the demo, in order: set up, load, a minute of firing with an edit and a crash, the audit."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.console import Console

import sql
from cronstream.clock import Clock, iso
from cronstream.settings import Installation, read_settings
from demo import fleet, forecast
from demo.audit import Audit, Result, rules_of
from demo.events import EDITED_FROM_SECONDS, EDITED_TO_SECONDS, Edit, Kill
from demo.fleet import FastJob
from demo.oracle import SECOND
from demo.receiver import Receiver
from demo.show import Show
from demo.timeline import Timeline
from demo.watch import Watch
from stack import ports, process, servers, services
from stack.errors import StackError
from stack.home import Home
from stack.paths import CHECKOUT, VENV_PYTHON
from stack.waiting import Stopwatch, progress, wait_until

FIRE_SECONDS = 60
EDIT_AT = 20
KILL_AT = 30
LEADER_SECONDS = 60.0
PNG = Path(".local/demo-forecast.png")


class Story:
    """One run of the demo on its own home. The caller takes the home down afterwards."""

    def __init__(self, home: Home, console: Console, clock: Clock) -> None:
        self._home = home
        self._console = console
        self._clock = clock
        self._began_ns = clock.boot_ns()
        self._timeline = Timeline(clock)

    def play(self) -> Result:
        """All acts. Raises StackError when a step fails."""
        self._set_up()
        settings = read_settings(Installation, self._home.environment())
        self._receiver = Receiver(self._home.port("receiver"))
        streams = f"127.0.0.1:{services.status_port(self._home, 'streams-1')}"
        self._watch = Watch(settings.etcd, settings.installation, streams, self._clock)
        with sql.connect(settings, "demo", autocommit=True) as self._connection:
            self._timeline.read(self._connection)
            self._wait_for_leader()
            self._say(f"set-up took {self._seconds():.1f} s")
            self._load_real_fleet()
            jobs = self._load_fast_jobs()
            return self._audit(jobs, *self._fire(jobs))

    def _set_up(self) -> None:
        home = self._home
        with self._step("servers: Postgres, etcd, Kafka, Connect", tells=True):
            servers.up(home, quiet=True)
        with self._step("schema, topics, capture", tells=True):
            services.setup(home)
        with self._step("2 coordinators, streams, mover, sink, worker, receiver", tells=True):
            port = home.port("receiver")
            process.spawn(
                [str(VENV_PYTHON), "-m", "demo.receiver", str(port)],
                pid_file=home.pid_file("receiver"),
                log_file=home.log_file("receiver"),
                environment={**os.environ, **home.environment()},
                folder=CHECKOUT,
            )
            services.up(home, quiet=True)
            if not wait_until(lambda: ports.serves(port, "/health"), 20):
                raise StackError(f"receiver: does not answer. Its log:\n{process.tail(home.log_file('receiver'))}")

    def _wait_for_leader(self) -> None:
        with self._step("a leader in office, streams at work"):

            def at_work() -> bool:
                figures = self._watch.look()
                return figures.answers and bool(figures.streams)

            if not wait_until(at_work, LEADER_SECONDS, pause=0.2):
                logs = "\n".join(process.tail(self._home.log_file(f"coordinator-{n}"), 10) for n in (1, 2))
                raise StackError(f"no coordinator took office within {LEADER_SECONDS:.0f} s:\n{logs}")

    def _load_real_fleet(self) -> None:
        jobs = fleet.real_fleet()
        with self._step(f"INSERT of the Kubernetes project's {len(jobs):,} periodic jobs") as outcome:
            refused = fleet.insert_real(self._connection, jobs)
            outcome.append(f"{len(jobs) - len(refused):,} inserted, {len(refused)} refused")
        for name, why in refused.items():
            self._say(f"  refused by the database: {name}: {why}")
        if refused:
            self._say("  (as expected: their owners parked them on a 30 February; here enabled = false parks a job)")
        inserted = len(jobs) - len(refused)
        with self._step(f"forecast, saved as {PNG}"):
            now_us = self._timeline.read(self._connection)
            counts = forecast.per_minute(jobs, now_us)
            forecast.save_png(counts, now_us, inserted, CHECKOUT / PNG)
        self._say(forecast.summary(counts, inserted))
        for line in forecast.drawing(counts, now_us):
            self._say(line)

    def _load_fast_jobs(self) -> list[FastJob]:
        with self._step("INSERT of 300 jobs that fire every 1 to 20 s"):
            return fleet.insert_fast(self._connection, self._receiver.url)

    def _fire(self, jobs: list[FastJob]) -> tuple[Edit, Kill, int]:
        """The minute: the live table, the edit, the crash. Also returns when it ended."""
        edit, kill = Edit(next(job for job in jobs if job.every_seconds == EDITED_FROM_SECONDS)), Kill()
        began, next_look = self._clock.boot_ns(), 0
        with Show(self._console, FIRE_SECONDS) as show:
            while (second := (self._clock.boot_ns() - began) / 1e9) < FIRE_SECONDS:
                if second >= EDIT_AT and edit.committed_us is None:
                    show.event(second, edit.committed(fleet.edit(self._connection, edit.job, EDITED_TO_SECONDS)))
                if second >= KILL_AT and kill.boot_ns is None:
                    show.event(second, self._kill(kill))
                if second >= next_look:
                    next_look = int(second) + 1
                    self._timeline.read(self._connection)
                    figures = self._watch.look()
                    edit.capture_lag(figures.capture_lag_ms)
                    show.figures(figures, second)
                for call in self._receiver.fetch():
                    at_us = self._timeline.database_us(call.boot_ns)
                    for sentence in (edit.hear(call.key, at_us), kill.hear(call.token, call.boot_ns)):
                        if sentence:
                            show.event(second, sentence)
                self._clock.sleep(0.1)
            end_us = self._timeline.read(self._connection) // SECOND * SECOND
            show.figures(self._watch.look(), FIRE_SECONDS)
        return edit, kill, end_us

    def _kill(self, kill: Kill) -> str:
        leader = self._watch.leader()
        if leader is None or leader.node not in services.SERVICES:
            raise StackError(f"nobody to kill: the leader key names {leader and leader.node}")
        boot_ns = self._clock.boot_ns()
        services.kill(self._home, leader.node)
        return kill.killed(leader.node, leader.token, boot_ns)

    def _audit(self, jobs: list[FastJob], edit: Edit, kill: Kill, end_us: int) -> Result:
        audit = Audit(self._connection, self._receiver, self._timeline, rules_of(jobs, edit, end_us), end_us)
        with self._step(f"waiting for what was due until {iso(end_us)}"):
            audit.wait_for_arrivals(self._clock)
        with self._step("reading cronstream.job_runs"):
            audit.wait_for_history()
        result = audit.result(kill)
        for line in audit.report(result, edit):
            self._say(line)
        return result

    @contextmanager
    def _step(self, name: str, *, tells: bool = False) -> Iterator[list[str]]:
        """Takes what to say of its outcome. ``tells``: what is done in it says itself how far it is."""
        outcome: list[str] = []
        quiet = tells or not sys.stderr.isatty()
        with nullcontext(Stopwatch()) if quiet else progress(lambda: name) as watch:
            yield outcome
        said = "".join(f": {one}" for one in outcome)
        self._say(f"[{self._seconds():5.1f} s] {name}{said} ({watch.seconds:.1f} s)")

    def _seconds(self) -> float:
        return (self._clock.boot_ns() - self._began_ns) / 1e9

    def _say(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
