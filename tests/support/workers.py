"""Admission's side and settlement's side of workers, and attempts for them."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from cronstream.bodies import Policy, Report, Work, pack, report_of
from cronstream.records import Batch, Item, Kind, Source
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from workers.progress import Position, decode_metadata

SCHEDULED_US = 1_772_953_200_000_000
TOKEN = 41


def item(job_id: int, handler: str, payload: Any, *, tenant: str = "acme") -> Item:
    work = Work(tenant, f"job-{job_id}", handler, json.dumps(payload).encode(), Policy())
    return Item(Kind.RUN, job_id, SCHEDULED_US, body=pack(work))


def log_item(job_id: int) -> Item:
    return item(job_id, "log", {})


def command_item(job_id: int, argv: list[str], *, tenant: str = "acme") -> Item:
    return item(job_id, "command", {"argv": argv}, tenant=tenant)


class World:
    """Admission and settlement of an installation that runs workers alone."""

    def __init__(self, kafka: str, installation: TestInstallation) -> None:
        self.installation = installation
        self.topics = installation.topics
        self._producer = Producer({"bootstrap.servers": kafka})
        self._consumer = Consumer(
            {"bootstrap.servers": kafka, "group.id": f"{installation.name}-test", "enable.auto.commit": False}
        )
        topics = (self.topics.outcomes, self.topics.dead_letter)
        self._consumer.assign([TopicPartition(topic, number, 0) for topic in topics for number in range(4)])
        self._offsets: Counter[int] = Counter()
        self._group = Consumer(
            {"bootstrap.servers": kafka, "group.id": f"{installation.name}-workers", "enable.auto.commit": False}
        )
        self.outcomes: list[tuple[int, Batch, Item]] = []
        self.dead: list[Message] = []

    def close(self) -> None:
        self._consumer.close()
        self._group.close()

    def worker(self, node: str, **changes: object) -> subprocess.Popen[bytes]:
        changes = {"command_enabled": "true", "drain_seconds": 5, "process_slots": changes.get("slots", 20), **changes}
        return self.installation.start("workers", node, **changes)

    def emit(self, partition: int, *items: Item, source: int | None = None) -> None:
        """One record of attempts, as admit would emit it."""
        if source is None:
            source = self._offsets[partition]
            self._offsets[partition] += 1
        batch = Batch.of(items, token=TOKEN, published_at=9, source=Source(self.topics.triggers, partition, source))
        self.emit_raw(partition, batch.encode())

    def emit_raw(self, partition: int, value: bytes, **more: Any) -> None:
        self._producer.produce(self.topics.attempts, value, partition=partition, **more)
        assert self._producer.flush(10) == 0

    def read(self) -> None:
        """Read what is new."""
        while (message := self._consumer.poll(0.05)) is not None:
            assert message.error() is None, message.error()
            if message.topic() == self.topics.dead_letter:
                self.dead.append(message)
                continue
            batch = Batch.decode(message.value())
            number = message.partition()
            assert number is not None
            self.outcomes += [(number, batch, found) for found in batch.items()]

    def jobs(self, *kinds: Kind) -> list[int]:
        """The jobs of all outcomes of these kinds so far."""
        self.read()
        return sorted(found.job_id for _, _, found in self.outcomes if found.kind in kinds)

    def ends(self) -> dict[int, str]:
        """How each job ended. No job may end, or start, twice."""
        self.read()
        ended = [found for _, _, found in self.outcomes if found.kind.is_end]
        assert max(Counter(found.job_id for found in ended).values(), default=1) == 1
        assert max(Counter(self.jobs(Kind.STARTED)).values(), default=1) == 1
        return {found.job_id: found.kind.name for found in ended}

    def wait_for_ends(self, count: int, within: float = 30) -> dict[int, str]:
        return eventually(
            lambda: self.ends() if len(self.ends()) >= count else {}, within=within, says=f"{count} runs have ended"
        )

    def report(self, job_id: int, kind: Kind) -> Report:
        [body] = [found.body for _, _, found in self.outcomes if (found.job_id, found.kind) == (job_id, kind)]
        return report_of(body)

    def committed(self, partition: int) -> Position:
        [found] = self._group.committed([TopicPartition(self.topics.attempts, partition)], timeout=10)
        position = decode_metadata(found.offset, found.metadata)
        return position or Position(-1, -1)

    def ran(self, node: str) -> list[int]:
        """The jobs whose log handler ran on a worker."""
        lines = [line for line in self.installation.log_of(node).splitlines() if "A job ran" in line]
        return [int(re.findall(r" job_id=(\d+) ", line)[0]) for line in lines]

    def assignments(self, node: str) -> list[list[int]]:
        """The partitions of each assignment that a node was given, in order."""
        return [partitions for what, partitions in self._moves(node) if what == "assigned"]

    def held(self, node: str) -> set[int]:
        """What a node holds now, by its log."""
        held: set[int] = set()
        for what, partitions in self._moves(node):
            held = held.union(partitions) if what == "assigned" else held.difference(partitions)
        return held

    def _moves(self, node: str) -> list[tuple[str, list[int]]]:
        lines = re.findall(r"action=(assigned|revoked|lost) partitions=([\d,]+)", self.installation.log_of(node))
        return [(what, [int(number) for number in numbers.split(",")]) for what, numbers in lines]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone, or going while it is read
        return False


def saying_its_pid(folder: Path, then: str) -> Callable[[int], list[str]]:
    return lambda job_id: ["sh", "-c", f"echo $$ > {folder}/{job_id}; {then}"]
