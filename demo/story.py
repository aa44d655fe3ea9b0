"""The acts of the demo, in order: set up, load, a minute of firing with an edit and a crash, the audit."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

import sql
from cronstream.clock import Clock, iso
from cronstream.settings import Installation, read_settings
from demo import fleet, forecast, oracle
from demo.fleet import FastJob
from demo.oracle import SECOND, Arrival, Rule, Verdict
from demo.receiver import Receiver
from demo.show import Show
from demo.timeline import Timeline
from demo.watch import Watch
from stack import ports, process, servers, services
from stack.errors import StackError
from stack.home import Home
from stack.paths import CHECKOUT, VENV_PYTHON
from stack.waiting import progress, wait_until

FIRE_SECONDS = 60
EDIT_AT = 20
KILL_AT = 30
EDITED_FROM_SECONDS, EDITED_TO_SECONDS = 15, 3
LEADER_SECONDS = 60.0
ARRIVE_SECONDS = 45.0
QUIET_SECONDS = 2.0
HISTORY_SECONDS = 15.0
TOLERATED_LAG_US = 5 * SECOND
PNG = Path(".local/demo-forecast.png")

_TAKEOVER = """
SELECT (extract(epoch FROM min(published_at)) * 1000000)::bigint FROM cronstream.job_runs WHERE fencing_token > %s
"""
_HISTORY = """
SELECT count(*) FILTER (WHERE r.outcome = 'succeeded'), count(*) FILTER (WHERE r.attempt = 0),
       count(*) FILTER (WHERE r.attempt > 0 AND r.outcome <> 'succeeded')
FROM cronstream.job_runs r WHERE r.tenant = %s AND r.scheduled_time <= to_timestamp(%s)
"""
_PUBLISHED_EARLY = """
SELECT job_id, (extract(epoch FROM scheduled_time) * 1000000)::bigint FROM cronstream.job_runs
WHERE attempt > 0 AND published_at < scheduled_time
"""
_ANCHORS = "SELECT job_id, (extract(epoch FROM anchor) * 1000000)::bigint FROM cronstream.schedules"


@dataclass(frozen=True, slots=True)
class Result:
    """What the last line says."""

    verdict: Verdict
    published_early: int
    takeover_s: float | None

    @property
    def passed(self) -> bool:
        """Nothing was missed, early or run twice, and a new leader took over."""
        return self.verdict.clean and self.published_early == 0 and self.takeover_s is not None

    def line(self) -> dict[str, Any]:
        """The keys of the last line."""
        verdict = self.verdict
        return {
            "expected": verdict.expected,
            "received": verdict.received,
            "missed": len(verdict.missed),
            "duplicated": len(verdict.duplicated),
            "early": len(verdict.early) + self.published_early,
            "worst_lateness_ms": round(verdict.worst_lateness_ms, 1),
            "takeover_s": None if self.takeover_s is None else round(self.takeover_s, 3),
        }


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
            return self._audit(*self._fire(jobs))

    def _set_up(self) -> None:
        home = self._home
        with self._step("servers: Postgres, etcd, Kafka, Connect"):
            servers.up(home, quiet=True)
        with self._step("schema, topics, capture"):
            services.setup(home)
        with self._step("2 coordinators, streams, sink, worker, receiver"):
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
        with self._step(f"INSERT of the Kubernetes project's {len(jobs):,} periodic jobs"):
            refused = fleet.insert_real(self._connection, jobs)
        for name, why in refused.items():
            self._say(f"  refused by the database: {name}: {why}")
        with self._step(f"forecast, saved as {PNG}"):
            now_us = self._timeline.read(self._connection)
            counts = forecast.per_minute(jobs, now_us)
            forecast.save_png(counts, now_us, len(jobs), CHECKOUT / PNG)
        self._say(forecast.summary(counts, len(jobs)))
        for line in forecast.drawing(counts, now_us):
            self._say(line)

    def _load_fast_jobs(self) -> list[FastJob]:
        with self._step("INSERT of 300 jobs that fire every 1 to 20 s"):
            return fleet.insert_fast(self._connection, self._receiver.url)

    def _fire(self, jobs: list[FastJob]) -> tuple[list[FastJob], Edit, Kill, int]:
        """The minute: the live table, the edit, the crash."""
        edited = next(job for job in jobs if job.every_seconds == EDITED_FROM_SECONDS)
        edit, kill = Edit(edited), Kill()
        began = self._clock.boot_ns()
        next_look = 0.0

        with Show(self._console, FIRE_SECONDS) as show:
            while (second := (self._clock.boot_ns() - began) / 1e9) < FIRE_SECONDS:
                if second >= EDIT_AT and edit.committed_us is None:
                    edit.committed_us = fleet.edit(self._connection, edited, EDITED_TO_SECONDS)
                    show.event(
                        second,
                        f"UPDATE job {edited.job_id} ({edited.name}): every {EDITED_FROM_SECONDS} s -> "
                        f"every {EDITED_TO_SECONDS} s, committed {iso(edit.committed_us)}",
                    )
                if second >= KILL_AT and kill.boot_ns is None:
                    self._kill(kill)
                    show.event(second, f"SIGKILL to {kill.node}, the leader with token {kill.token}")
                if second >= next_look:
                    next_look = int(second) + 1
                    self._timeline.read(self._connection)
                    figures = self._watch.look()
                    edit.lag_ms = edit.lag_ms or (figures.capture_lag_ms if edit.committed_us else None)
                    show.figures(figures, second)
                for call in self._receiver.fetch():
                    at_us = self._timeline.database_us(call.boot_ns)
                    for sentence in (edit.hear(call.key, at_us), kill.hear(call.token, call.boot_ns)):
                        if sentence:
                            show.event(second, sentence)
                self._clock.sleep(0.1)
            end_us = self._timeline.read(self._connection) // SECOND * SECOND
            show.figures(self._watch.look(), FIRE_SECONDS)
        return jobs, edit, kill, end_us

    def _kill(self, kill: Kill) -> None:
        leader = self._watch.leader()
        if leader is None or leader.node not in services.SERVICES:
            raise StackError(f"nobody to kill: the leader key names {leader and leader.node}")
        kill.node, kill.token = leader.node, leader.token
        kill.boot_ns = self._clock.boot_ns()
        services.kill(self._home, leader.node)

    def _audit(self, jobs: list[FastJob], edit: Edit, kill: Kill, end_us: int) -> Result:
        rules = rules_of(jobs, edit, end_us)
        expected = oracle.expected_runs(rules)
        tolerated = oracle.tolerated_runs(rules, TOLERATED_LAG_US, end_us)

        def verdict() -> Verdict:
            self._receiver.fetch()
            arrivals = [Arrival(call.key, self._timeline.database_us(call.boot_ns)) for call in self._receiver.calls]
            return oracle.judge(expected, tolerated, arrivals, end_us)

        with self._step(f"waiting for what was due before {iso(end_us)}"):
            wait_until(lambda: not verdict().missed, ARRIVE_SECONDS, pause=0.3)
            self._clock.sleep(QUIET_SECONDS)  # what comes late a second time shall be seen
            self._timeline.read(self._connection)
            final = verdict()
        with self._step("reading cronstream.job_runs"):
            succeeded, skipped, failed = self._history(final.received, end_us)
        early = self._connection.execute(_PUBLISHED_EARLY).fetchall()
        already = set(final.early)
        result = Result(final, sum(run not in already for run in early), self._takeover_seconds(kill))
        self._report(result, rules, edit, (succeeded, skipped, failed))
        return result

    def _history(self, wanted: int, end_us: int) -> tuple[int, int, int]:
        found = (0, 0, 0)

        def complete() -> bool:
            nonlocal found
            found = self._connection.execute(_HISTORY, (fleet.TENANT, end_us / 1e6)).fetchone() or found
            return found[0] >= wanted

        wait_until(complete, HISTORY_SECONDS, pause=0.3)
        return found

    def _takeover_seconds(self, kill: Kill) -> float | None:
        """From the kill to the first trigger of a newer term: as published, else as it arrived."""
        if kill.boot_ns is None:
            return None
        row = self._connection.execute(_TAKEOVER, (kill.token,)).fetchone()
        if row is not None and row[0] is not None:
            return float(row[0] - self._timeline.database_us(kill.boot_ns)) / 1e6
        return kill.arrival_seconds

    def _report(self, result: Result, rules: list[Rule], edit: Edit, history: tuple[int, int, int]) -> None:
        verdict, say = result.verdict, self._say
        say("")
        say("AUDIT against what definitions, edit and clock demand")
        for name, value in result.line().items():
            say(f"  {name:<18} {value}")
        succeeded, skipped, failed = history
        say(f"  job_runs           {succeeded:,} succeeded, {failed:,} failed attempts, {skipped:,} skipped")
        say(f"  the edit           {edit.sentence or 'its new schedule was not seen to fire'}")
        anchors = dict(self._connection.execute(_ANCHORS).fetchall())
        last = {rule.job_id: rule for rule in rules if rule.every_seconds is not None}
        astray = [job_id for job_id, rule in last.items() if anchors.get(job_id) != rule.after_us]
        say(f"  anchors            {len(last) - len(astray)} of {len(last)} equal to the commits")
        for word, runs in (("missed", verdict.missed), ("duplicated", verdict.duplicated), ("early", verdict.early)):
            for job_id, at in runs[:10]:
                say(f"  {word}: job {job_id} at {iso(at)}")
        for key in verdict.unexpected[:10]:
            say(f"  nobody asked for: {key}")
        say("PASSED" if result.passed else "FAILED")

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        with progress(lambda: name) as watch:
            yield
        self._say(f"[{self._seconds():5.1f} s] {name} ({watch.seconds:.1f} s)")

    def _seconds(self) -> float:
        return (self._clock.boot_ns() - self._began_ns) / 1e9

    def _say(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


class Edit:
    """The edit, and the first fire of the schedule that it brought."""

    def __init__(self, job: FastJob) -> None:
        self.job = job
        self.committed_us: int | None = None
        self.lag_ms: float | None = None
        self.sentence: str | None = None

    def hear(self, key: str, at_us: int) -> str | None:
        """A call; a sentence when it is the first of the new schedule."""
        run = oracle.run_of(key)
        if self.committed_us is None or self.sentence is not None or run is None or run[0] != self.job.job_id:
            return None
        due_us = self.committed_us + EDITED_TO_SECONDS * SECOND
        if run[1] != due_us:
            return None
        lag = "" if self.lag_ms is None else f", captured after {self.lag_ms:.0f} ms"
        self.sentence = (
            f"took effect: first run of the new schedule {(at_us - self.committed_us) / 1000:.0f} ms after the commit, "
            f"{(at_us - due_us) / 1000:.0f} ms after its instant{lag}"
        )
        return self.sentence


class Kill:
    """The crash, and the first call that carries a newer token."""

    def __init__(self) -> None:
        self.boot_ns: int | None = None
        self.node = ""
        self.token = 0
        self.arrival_seconds: float | None = None

    def hear(self, token: int, boot_ns: int) -> str | None:
        """A call; a sentence when it is the first of the new leader."""
        if self.boot_ns is None or self.arrival_seconds is not None or token <= self.token:
            return None
        self.arrival_seconds = (boot_ns - self.boot_ns) / 1e9
        return (
            f"takeover: the first run of a new leader (token {token}) came {self.arrival_seconds:.2f} s after the kill"
        )


def rules_of(jobs: list[FastJob], edit: Edit, end_us: int) -> list[Rule]:
    """What held for whom and when, up to the end of the audit's window."""
    rules = []
    for job in jobs:
        until_us, commit_us = end_us, edit.committed_us
        if job == edit.job and commit_us is not None:
            until_us = commit_us
            rules.append(Rule(job.job_id, commit_us, end_us, every_seconds=EDITED_TO_SECONDS))
        rules.append(Rule(job.job_id, job.committed_us, until_us, job.every_seconds, job.cron_step))
    # The rule in force now comes last.
    return sorted(rules, key=lambda rule: (rule.job_id, rule.after_us))
