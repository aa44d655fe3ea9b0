"""What a run recorded: events as JSON lines. All that the judges know.

A history is written while the run goes on and read back whole, so a run can be
judged again long after its servers are gone.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tests.faults.events import AnyEvent, Attempt, Event, Execution, Fault, Outcome, Run, Skip, Window

E = TypeVar("E", bound=AnyEvent)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


class Recorder:
    """Appends events to a file; from any thread."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.Lock()
        file.parent.mkdir(parents=True, exist_ok=True)
        self._out = file.open("ab")

    def record(self, *events: Event) -> None:
        """Write events, whole lines at once."""
        with self._lock:
            self._out.write(b"".join(_encoder.encode(event) + b"\n" for event in events))
            self._out.flush()

    def close(self) -> None:
        self._out.close()


def read_events(file: Path) -> Iterator[Event]:
    """The events of a file, in the order of writing; a last line that was cut is left out."""
    with file.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield _decoder.decode(line)


class History:
    """The events of one run by kind, with the look-ups that judges share."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._by_kind: dict[type, list[Any]] = defaultdict(list)
        for event in events:
            self._by_kind[type(event)].append(event)

    @classmethod
    def read(cls, file: Path) -> History:
        return cls(read_events(file))

    def of(self, kind: type[E]) -> list[E]:
        """All events of one kind, in the order of writing."""
        return self._by_kind[kind]

    @cached_property
    def window(self) -> Window:
        windows = self.of(Window)
        assert len(windows) == 1, "a history has one window, written last: this run did not come to its end"
        return windows[0]

    @cached_property
    def admitted(self) -> list[Attempt]:
        """The attempts that workers took: in the order of the topic, a second emission of a source left out.

        A worker keeps the highest source taken of each partition and topic, and drops what is not above it.
        """
        taken: dict[tuple[int, str, int], tuple[int, int]] = {}
        admitted = []
        ordered = sorted(self.of(Attempt), key=lambda attempt: (attempt.partition, attempt.offset))
        for _, record in _by_record(ordered):
            topic, partition, offset, part = record[0].source
            place = (record[0].partition, topic, partition)
            if place in taken and (offset, part) <= taken[place]:
                continue
            taken[place] = (offset, part)
            admitted += record
        return admitted

    @cached_property
    def first_admitted(self) -> dict[Run, Attempt]:
        """By run, its first attempt."""
        first: dict[Run, Attempt] = {}
        for attempt in self.admitted:
            if attempt.attempt == 1:
                first.setdefault(attempt.run, attempt)
        return first

    @cached_property
    def skips_by_job(self) -> dict[int, list[Skip]]:
        by_job: dict[int, list[Skip]] = defaultdict(list)
        for skip in self.of(Skip):
            by_job[skip.job_id].append(skip)
        return by_job

    @cached_property
    def ends(self) -> dict[Run, dict[int, str]]:
        """By run and attempt, how it ended. An end that is known beats ``lost``."""
        ends: dict[Run, dict[int, str]] = defaultdict(dict)
        for outcome in self.of(Outcome):
            if outcome.how != "started" and ends[outcome.run].get(outcome.attempt, "lost") == "lost":
                ends[outcome.run][outcome.attempt] = outcome.how
        return ends

    @cached_property
    def executed(self) -> dict[Run, list[Execution]]:
        """By run, its calls in order of time."""
        executed: dict[Run, list[Execution]] = defaultdict(list)
        for execution in sorted(self.of(Execution), key=lambda execution: execution.at_us):
            executed[execution.run].append(execution)
        return executed

    def in_fault(self, from_us: int, until_us: int, *, after_us: int = 0) -> bool:
        """Whether some of [from_us, until_us] lies in a fault's window, or so long after it."""
        return any(fault.began_us <= until_us and from_us <= fault.ended_us + after_us for fault in self.of(Fault))


def _by_record(attempts: Iterable[Attempt]) -> Iterator[tuple[tuple[int, int], list[Attempt]]]:
    record: list[Attempt] = []
    for attempt in attempts:
        if record and (record[0].partition, record[0].offset) != (attempt.partition, attempt.offset):
            yield (record[0].partition, record[0].offset), record
            record = []
        record.append(attempt)
    if record:
        yield (record[0].partition, record[0].offset), record
