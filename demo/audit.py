"""The end of the demo: calls and history against the oracle, and the figures of the last line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg

from cronstream.clock import Clock, iso
from demo import fleet, oracle
from demo.events import EDITED_TO_SECONDS, Edit, Kill
from demo.fleet import FastJob
from demo.oracle import SECOND, Arrival, Rule, Verdict
from demo.receiver import Receiver
from demo.timeline import Timeline
from stack.waiting import wait_until

ARRIVE_SECONDS = 45.0
QUIET_SECONDS = 2.0
HISTORY_SECONDS = 15.0
TOLERATED_LAG_US = 5 * SECOND
_SHOWN = 10

_HISTORY = """
SELECT count(*) FILTER (WHERE outcome = 'succeeded'), count(*) FILTER (WHERE attempt > 0 AND outcome <> 'succeeded'),
       count(*) FILTER (WHERE attempt = 0)
FROM cronstream.job_runs WHERE tenant = %s AND scheduled_time <= to_timestamp(%s)
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
    """By history, beyond those that arrived early."""
    takeover_s: float | None
    """From the kill to the first call with a newer token, as the line of the minute says it."""

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


def rules_of(jobs: list[FastJob], edit: Edit, end_us: int) -> list[Rule]:
    """What held for whom and when, up to the end of the audit's window; the rule in force now comes last."""
    rules = []
    for job in jobs:
        until_us, commit_us = end_us, edit.committed_us
        if job == edit.job and commit_us is not None:
            until_us = commit_us
            rules.append(Rule(job.job_id, commit_us, end_us, every_seconds=EDITED_TO_SECONDS))
        rules.append(Rule(job.job_id, job.committed_us, until_us, job.every_seconds, job.cron_step))
    return sorted(rules, key=lambda rule: (rule.job_id, rule.after_us))


class Audit:
    """Everything due up to ``end_us``, by the database's clock."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        receiver: Receiver,
        timeline: Timeline,
        rules: list[Rule],
        end_us: int,
    ) -> None:
        self._connection = connection
        self._receiver = receiver
        self._timeline = timeline
        self._rules = rules
        self._end_us = end_us
        self._expected = oracle.expected_runs(rules)
        self._tolerated = oracle.tolerated_runs(rules, TOLERATED_LAG_US, end_us)

    def wait_for_arrivals(self, clock: Clock) -> None:
        """Until nothing is missing, or too long; and then a little, to see what comes twice."""
        wait_until(lambda: not self._verdict().missed, ARRIVE_SECONDS, pause=0.3)
        clock.sleep(QUIET_SECONDS)
        self._timeline.read(self._connection)

    def wait_for_history(self) -> None:
        """Until the sink has written what was received, or too long."""
        wanted = self._verdict().received
        wait_until(lambda: self._history()[0] >= wanted, HISTORY_SECONDS, pause=0.3)

    def result(self, kill: Kill) -> Result:
        """The figures."""
        verdict = self._verdict()
        known = set(verdict.early)
        early = [run for run in self._connection.execute(_PUBLISHED_EARLY) if run not in known]
        return Result(verdict, len(early), self._takeover_seconds(kill))

    def report(self, result: Result, edit: Edit) -> Iterator[str]:
        """Lines for people."""
        verdict = result.verdict
        yield "AUDIT against what definitions, edit and clock demand"
        for name, value in result.line().items():
            yield f"  {name:<18} {value}"
        succeeded, failed, skipped = self._history()
        yield f"  job_runs           {succeeded:,} succeeded, {failed:,} failed attempts, {skipped:,} skipped"
        yield f"  the edit           {edit.sentence or 'its new schedule was not seen to fire'}"
        anchors = dict(self._connection.execute(_ANCHORS).fetchall())
        last = {rule.job_id: rule for rule in self._rules if rule.every_seconds is not None}
        right = sum(anchors.get(job_id) == rule.after_us for job_id, rule in last.items())
        yield f"  anchors            {right} of {len(last)} equal to the commit that set the interval"
        for word, runs in (("missed", verdict.missed), ("duplicated", verdict.duplicated), ("early", verdict.early)):
            for job_id, at in runs[:_SHOWN]:
                yield f"  {word}: job {job_id} at {iso(at)}"
        for key in verdict.unexpected[:_SHOWN]:
            yield f"  nobody asked for: {key}"
        yield "PASSED" if result.passed else "FAILED"

    def _verdict(self) -> Verdict:
        self._receiver.fetch()
        arrivals = [Arrival(call.key, self._timeline.database_us(call.boot_ns)) for call in self._receiver.calls]
        return oracle.judge(self._expected, self._tolerated, arrivals, self._end_us)

    def _history(self) -> tuple[int, int, int]:
        """Attempts of the fast jobs that succeeded, that did not, and runs that were skipped."""
        row = self._connection.execute(_HISTORY, (fleet.TENANT, self._end_us / 1e6)).fetchone()
        return row or (0, 0, 0)

    def _takeover_seconds(self, kill: Kill) -> float | None:
        """Known since the minute, or found among what came after it."""
        for call in self._receiver.calls:
            kill.hear(call.token, call.boot_ns)
        return kill.arrival_seconds
