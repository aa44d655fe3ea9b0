"""Which requests the dispatcher works on: open ones, a bounded number at a time, one step each.

    the feed, or the audit ──► waiting ──► asked for ──► handed over ──► stored ──► waiting again, or done

It belongs to the reader: ``turn`` and ``audit`` are the reader's thread, the others say so.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Any

from coordinator.arrivals import Mailbox, Requested
from coordinator.requests import BACKFILL, REDRIVE, Step, Tried, next_step
from cronstream.settings import CoordinatorSettings

STEPS_A_SECOND = 4
"""A backfill's step is so large that its own next one is asked for at this rate."""
_MOST_ITEMS = 500
_HANDED_OVER = (1000, 8)
"""The most requests that are with the dispatcher or the writer: to be run now, and backfills."""
_READ_AT_ONCE = 500
_OPEN_AT_ONCE = 10_000
_TRIES_FOR_A_ROW = 20

Ask = Callable[[str, dict[str, Any]], list[dict[str, Any]]]


class RequestReader:
    """Requests by number; see the module's text."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        mailbox: Mailbox,
        wake: Callable[[], None],
        unnoted: Collection[Tried] = (),
    ) -> None:
        """``unnoted``: attempts of requests that the last leader published and perhaps did not note."""
        self._unnoted: dict[tuple[int, int], set[Tried]] = {}
        """By job and request number of the run."""
        for tried in unnoted:
            self._unnoted.setdefault((tried[0], tried[2]), set()).add(tried)
        self._mailbox = mailbox
        self._wake = wake
        self._step_items = min(max(settings.backfill_per_second // STEPS_A_SECOND, 1), _MOST_ITEMS)
        self._delivered: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        self._stored: queue.SimpleQueue[Step] = queue.SimpleQueue()
        self._waiting: tuple[dict[int, int], dict[int, int]] = ({}, {})
        """By lane: numbers in order, each with how often it was asked for in vain."""
        self._with_dispatcher: tuple[set[int], set[int]] = (set(), set())

    @property
    def open(self) -> int:
        """How many requests are known to be open."""
        return sum(map(len, self._waiting)) + sum(map(len, self._with_dispatcher))

    @property
    def unseen(self) -> bool:
        """True while a request was delivered whose row was not visible."""
        return any(tries for waiting in self._waiting for tries in waiting.values())

    def requested(self, number: int, kind: str) -> None:
        """The feed saw a request. The feed's thread."""
        self._delivered.put((number, kind))
        self._wake()

    def stepped(self, steps: Sequence[Step]) -> None:
        """What was handed over is stored. The writer's thread."""
        for step in steps:
            self._stored.put(step)
        self._wake()

    def audit(self, ask: Ask) -> None:
        """Take up open requests that are not known: all of them when a term begins, later what capture missed."""
        after = 0
        while True:
            rows = ask("open_requests", {"after": after, "most": _OPEN_AT_ONCE})
            for row in rows:
                self._take_up(row["number"], row["kind"] == BACKFILL)
            if len(rows) < _OPEN_AT_ONCE:
                break
            after = rows[-1]["number"]
        self.turn(ask)

    def turn(self, ask: Ask) -> None:
        """Hand over the next steps of as many requests as may be under way."""
        while not self._stored.empty():
            step = self._stored.get()
            self._with_dispatcher[step.backfill].discard(step.number)
            if not step.is_last:
                self._take_up(step.number, step.backfill)
        while not self._delivered.empty():
            number, kind = self._delivered.get()
            self._take_up(number, kind == BACKFILL)
        for lane, most in enumerate(_HANDED_OVER):
            self._hand_over(ask, lane, most)

    def _next_step(self, row: dict[str, Any]) -> Step | None:
        number = row["run_request_id"] if row["kind"] == REDRIVE else row["number"]
        return next_step(row, self._step_items, self._unnoted.get((row["requested_job_id"], number), ()))

    def _take_up(self, number: int, lane: int) -> None:
        if number not in self._with_dispatcher[lane]:
            self._waiting[lane].setdefault(number, 0)

    def _hand_over(self, ask: Ask, lane: int, most: int) -> None:
        waiting, handed_over = self._waiting[lane], self._with_dispatcher[lane]
        numbers = list(islice(waiting, max(most - len(handed_over), 0)))
        for start in range(0, len(numbers), _READ_AT_ONCE):
            chunk = numbers[start : start + _READ_AT_ONCE]
            rows = ask("read_requests", {"numbers": chunk})
            steps = [step for row in rows if (step := self._next_step(row)) is not None]
            found = {row["number"] for row in rows}
            for number in chunk:
                tries = waiting.pop(number)
                # It can be delivered before its commit is visible. One that has no step yet waits for the audit.
                if number not in found and tries < _TRIES_FOR_A_ROW:
                    waiting[number] = tries + 1
            handed_over.update(step.number for step in steps)
            if steps:
                self._mailbox.put(Requested(steps))
