"""A streams process, who publishes to it, and who reads what it has said."""

from __future__ import annotations

import json
import socket
import subprocess
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from cronstream.records import Batch, Item
from cronstream.topics import partition_of
from tests.support.installation import TestInstallation
from tests.support.poll import eventually
from tests.unit.streams.making import outcomes

PARTITIONS = 4
JOBS = {
    partition: [job for job in range(1, 900) if partition_of(job, PARTITIONS) == partition]
    for partition in range(PARTITIONS)
}
"""Jobs of each partition."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Streams:
    """A streams process and its status pages."""

    process: subprocess.Popen[bytes]
    port: int

    def get(self, path: str) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 503 and error.headers["Retry-After"] is None:
                raise AssertionError("503 without Retry-After") from error
            return error.code, json.load(error)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return 0, {}

    def owned(self) -> int:
        code, health = self.get("/health")
        return len({lane["partition"] for lane in health["partitions"]}) if code == 200 else 0


def start(installation: TestInstallation, node: str, **changes: object) -> Streams:
    port = free_port()
    return Streams(installation.start("streams", node, status_port=port, **changes), port)


def at_work(installation: TestInstallation, node: str = "s1", **changes: object) -> Streams:
    streams = start(installation, node, **changes)
    eventually(lambda: streams.owned() == PARTITIONS, within=60, says=f"{node} owns all partitions")
    return streams


@dataclass
class Reader:
    """Everything committed on one topic so far: (partition, offset, batch or bytes, headers)."""

    consumer: Consumer
    records: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, installation: TestInstallation, topic: str, partitions: int = PARTITIONS) -> Reader:
        consumer = Consumer(
            {
                "bootstrap.servers": installation.endpoints.kafka,
                "group.id": f"read-{topic}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        return cls(consumer)

    def poll(self) -> list[Any]:
        for message in self.consumer.consume(1000, timeout=0.05):
            assert message.error() is None
            self.records.append(message)
        return self.records

    def batches(self) -> list[Batch]:
        return [Batch.decode(message.value()) for message in self.poll()]

    def items(self) -> list[Item]:
        return [item for batch in self.batches() for item in batch.items()]


class Publisher:
    """Produces batches; transactional as the coordinator is."""

    def __init__(self, installation: TestInstallation, name: str = "publisher") -> None:
        self.installation = installation
        self.producer = Producer(
            {
                "bootstrap.servers": installation.endpoints.kafka,
                "transactional.id": f"{installation.name}-{name}",
                "linger.ms": 2,
            }
        )
        self.producer.init_transactions(30)

    def publish(self, topic: str, batches: Iterable[tuple[int, Batch | bytes]], abort: bool = False) -> None:
        self.producer.begin_transaction()
        for partition, batch in batches:
            value = batch if isinstance(batch, bytes) else batch.encode()
            self.producer.produce(topic, value, partition=partition)
        if abort:
            self.producer.flush(10)
            self.producer.abort_transaction(30)
        else:
            self.producer.commit_transaction(30)

    def triggers(self, *batches: tuple[int, Batch | bytes], abort: bool = False) -> None:
        self.publish(self.installation.topics.triggers, batches, abort)

    def outcomes(self, *items: Item) -> None:
        by_partition = defaultdict(list)
        for item in items:
            by_partition[partition_of(item.job_id, PARTITIONS)].append(item)
        self.publish(
            self.installation.topics.outcomes,
            [(partition, outcomes(group)) for partition, group in by_partition.items()],
        )
