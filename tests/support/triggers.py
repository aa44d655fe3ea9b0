"""Read a topic of batches as a test sees it: committed records, from the beginning."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition

from cronstream.records import Batch, Item


@dataclass(frozen=True)
class Seen:
    """An item, and where it was."""

    partition: int
    offset: int
    token: int
    published_at: int
    acknowledged_ms: int
    """The broker's own timestamp of the record."""
    item: Item


class Watcher:
    """Follows one topic; ``seen`` holds all items so far."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 4) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"watch-{topic}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self.seen: list[Seen] = []

    def poll(self) -> list[Seen]:
        """Take in what has come; returns everything seen so far."""
        for message in self._consumer.consume(500, timeout=0.05):
            error = message.error()
            assert error is None, error
            batch = Batch.decode(message.value())
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self.seen += [
                Seen(partition, offset, batch.token, batch.published_at, message.timestamp()[1], item)
                for item in batch.items()
            ]
        return self.seen

    def close(self) -> None:
        self._consumer.close()
