"""Small literal histories: three seconds of one job, kept to the letter; tests then spoil them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.faults.events import (
    Attempt,
    DeadLetter,
    Edit,
    Event,
    Execution,
    Fault,
    Outcome,
    Process,
    Request,
    Row,
    Rule,
    Skip,
    Trigger,
    Window,
)
from tests.faults.history import History
from tests.faults.judges import expected_of
from tests.faults.judges.breach import Breach, Judge

S = 1_000_000
EVERY_SECOND = Rule(every_us=S)


@dataclass
class Small:
    """Events by kind; job 1 fires each second from second 1 on, unless told otherwise."""

    edits: list[Edit] = field(default_factory=lambda: [Edit(1, 0, EVERY_SECOND)])
    requests: list[Request] = field(default_factory=list)
    triggers: list[Trigger] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    until: int = 3
    settled: bool = True

    def history(self) -> History:
        return History(self.events())

    def events(self) -> list[Event]:
        window = Window(0, self.until * S, seed=0, minutes=0.05, settled=self.settled)
        kinds = (
            self.edits,
            self.requests,
            self.triggers,
            self.skips,
            self.attempts,
            self.outcomes,
            self.executions,
            self.rows,
            self.dead_letters,
            self.faults,
            self.processes,
        )
        return [*(event for kind in kinds for event in kind), window]

    def breaches(self, judge: Judge) -> list[Breach]:
        history = self.history()
        return list(judge(history, expected_of(history)))

    def run(self, second: int, *, offset: int | None = None, token: int = 5, **parts: Any) -> None:
        """A scheduled time that went through: published, admitted, run, recorded.

        ``parts``: published, at (seconds), ends (outcome a try, first to last).
        """
        at = second * S
        published = round(parts.get("published", second + 0.01) * S)
        called = round(parts.get("at", second + 0.05) * S)
        offset = len(self.triggers) if offset is None else offset
        self.triggers.append(Trigger(0, offset, token, published, 1, at))
        for number, how in enumerate(parts.get("ends", ("succeeded",)), 1):
            source = ("triggers", 0, offset, 0) if number == 1 else ("retry.due", 0, len(self.attempts), 0)
            self.attempt(at, number, source, token, called)
            self.executions.append(Execution(1, at, 0, called, number, token))
            self.outcomes.append(Outcome(1, at, 0, how, number, "worker-1", called, called + 1000))
            self.rows.append(Row(1, at, 0, number, how, token=token))
            called += S

    def attempt(self, at: int, number: int, source: tuple[str, int, int, int], token: int, at_us: int) -> None:
        self.attempts.append(Attempt(1, at, 0, 0, len(self.attempts), source, token, number, at_us))

    def skip(self, first: int, last: int, count: int, reason: str, published: float) -> None:
        self.skips.append(Skip(1, first * S, last * S, count, reason, round(published * S)))
        self.rows.append(Row(1, last * S, 0, 0, "skipped", reason, first * S, count))


def three_runs() -> Small:
    small = Small()
    for second in (1, 2, 3):
        small.run(second)
    return small


def said(small: Small, judge: Judge) -> list[str]:
    """What a judge finds broken."""
    return [breach.what for breach in small.breaches(judge)]
