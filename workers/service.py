"""Partitions and their records: decides what of a record runs, and what may be committed.

Lives in the event loop; the poll thread hands records in and asks for positions.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import Message

from cronstream.bodies import PoisonItem, Work, work_of
from cronstream.clock import Clock
from cronstream.fault_points import reach
from cronstream.records import Batch, Kind, PoisonRecord
from workers.attempt import Result, refused
from workers.donelog import DoneLog, Verdict, decide
from workers.progress import Position, Progress
from workers.reporter import Reporter
from workers.run import Record, Run, Tenure
from workers.runner import Runner
from workers.takeover import Takeover

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Partition:
    """One assigned partition of attempts."""

    tenure: Tenure
    progress: Progress
    redelivered_below: int
    log: DoneLog | None


CUT_OFF = "its worker died or was cut off once it had begun: it may have run"


class Service:
    """What the poll thread talks to."""

    def __init__(self, topic: str, clock: Clock) -> None:
        self.counts: Counter[str] = Counter()
        self.ended = 0
        """Items of records handed in that are over: ended, dropped or handed back."""
        self._topic = topic
        self._clock = clock
        self._partitions: dict[int, Partition] = {}
        self._runner: Runner | None = None
        self._reporter: Reporter | None = None

    def connect(self, runner: Runner, reporter: Reporter) -> None:
        """Wire it up; once, before anything else."""
        self._runner = runner
        self._reporter = reporter

    @property
    def runner(self) -> Runner:
        """Where runs go."""
        assert self._runner is not None
        return self._runner

    @property
    def reporter(self) -> Reporter:
        """Where outcomes go."""
        assert self._reporter is not None
        return self._reporter

    def adopt(self, takeover: Takeover) -> None:
        """A partition begins."""
        progress = Progress(
            takeover.position,
            outcomes_end=takeover.outcomes_end,
            redelivered_below=takeover.redelivered_below,
        )
        self._partitions[takeover.partition] = Partition(
            Tenure(takeover.partition), progress, takeover.redelivered_below, takeover.log
        )

    def take(self, message: Message, batch: Batch | PoisonRecord) -> None:
        """Take the next record of a partition."""
        number, offset = _place(message)
        partition = self._partitions[number]
        if isinstance(batch, PoisonRecord):
            self._set_aside(message, partition, batch)
            return
        fresh = partition.progress.take(offset, batch.source, len(batch))
        if not fresh:
            self.counts["second_emissions"] += 1
            self.ended += len(batch)
            return
        self.counts["taken"] += len(batch)
        record = Record(self._topic, partition.tenure, offset, batch.token, batch.published_at)
        if partition.log is not None and offset >= partition.redelivered_below:
            partition.log = None
        runs = self._runs(record, batch)
        if partition.log is not None:
            runs = self._remembered(runs, partition.log)
        self.runner.submit(self._readable(runs))

    def finished(self, record: Record, items: int) -> None:
        """That many items of a record are over and acknowledged."""
        reach("work.ended")
        if record.tenure.over:
            return
        self._partitions[record.partition].progress.finish(record.offset, items)
        self.ended += items

    def outcome_acknowledged(self, partition: int, offset: int) -> None:
        """Outcomes reach beyond ``offset``."""
        if partition in self._partitions:
            self._partitions[partition].progress.outcome_acknowledged(offset)

    def positions(self) -> dict[int, Position]:
        """What may be committed now, by partition."""
        return {number: partition.progress.position() for number, partition in self._partitions.items()}

    async def drain(self, partitions: Iterable[int], seconds: float) -> dict[int, Position]:
        """The partitions are handed back: finish what runs; what may be committed of them at the end."""
        ours = [number for number in partitions if number in self._partitions]
        await asyncio.gather(*(self.runner.drain(number, seconds) for number in ours))
        positions = {number: self._partitions[number].progress.position() for number in ours}
        self._forget(ours)
        return positions

    async def abandon(self, partitions: Iterable[int]) -> None:
        """The partitions are lost: another worker may have them already."""
        ours = [number for number in partitions if number in self._partitions]
        for number in ours:
            self._partitions[number].tenure.over = True
        await asyncio.gather(*(self.runner.abandon(number) for number in ours))
        self._forget(ours)

    def stats(self) -> dict[str, int]:
        """Counts since the start, and what is going on now."""
        return {
            "partitions": len(self._partitions),
            "waiting": self.runner.waiting,
            "running": self.runner.running,
            **self.counts,
            **self.runner.counts,
        }

    def _runs(self, record: Record, batch: Batch) -> list[Run]:
        columns = zip(
            batch.kind.tolist(),
            batch.job_id.tolist(),
            batch.scheduled.tolist(),
            batch.request_id.tolist(),
            batch.attempt.tolist(),
            batch.each_body(),
            strict=True,
        )
        return [
            Run(record, job_id, scheduled, request_id, attempt, body, _work(kind, body))
            for kind, job_id, scheduled, request_id, attempt, body in columns
        ]

    def _remembered(self, runs: list[Run], log: DoneLog) -> list[Run]:
        """Of a redelivered record, what is still to run."""
        to_run = []
        for run, verdict in zip(runs, decide((run.key for run in runs), log), strict=True):
            if verdict is Verdict.RUN:
                to_run.append(run)
            elif verdict is Verdict.DONE:
                self.counts["done_before"] += 1
                self.finished(run.record, 1)
            else:
                self.counts["lost"] += 1
                run.started_by, run.started_at = log.start(run.key)
                self.reporter.ended(run, Result(Kind.LOST, CUT_OFF))
        return to_run

    def _readable(self, runs: list[Run]) -> list[Run]:
        """What can run; the rest ends as failed."""
        for run in runs:
            if run.work is None:
                self.counts["poison_items"] += 1
                run.started_at = self._clock.wall_us()
                self.reporter.ended(run, refused("the attempt cannot be read: its body is not a Work"))
        return [run for run in runs if run.work is not None]

    def _set_aside(self, message: Message, partition: Partition, poison: PoisonRecord) -> None:
        number, offset = _place(message)
        partition.progress.take(offset, None, 1)
        self.counts["poison_records"] += 1
        logger.warning(
            "A record is set aside: %s",
            poison,
            extra={"action": "dead_letter", "topic": self._topic, "partition": number, "offset": offset},
        )
        record = Record(self._topic, partition.tenure, offset, 0, 0)
        self.reporter.dead_letter(message, str(poison), lambda: self.finished(record, 1))

    def _forget(self, partitions: Iterable[int]) -> None:
        for number in partitions:
            partition = self._partitions.pop(number)
            partition.tenure.over = True
            self.ended += partition.progress.unfinished


def _work(kind: int, body: bytes) -> Work | None:
    if kind != Kind.RUN:
        return None
    try:
        return work_of(body)
    except PoisonItem:
        return None


def _place(message: Message) -> tuple[int, int]:
    number, offset = message.partition(), message.offset()
    assert number is not None
    assert offset is not None
    return number, offset
