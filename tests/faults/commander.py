"""Users that ask by Kafka instead of SQL: a run-now about once a second, each with an id of its own."""

from __future__ import annotations

import json
import threading
from random import Random

from confluent_kafka import KafkaError, Message, Producer

from tests.faults.cluster import Cluster
from tests.faults.events import Command, Request

SECONDS = 1.0
_ANSWERED = """
SELECT number, job_id, cronstream.us(requested_at), cronstream.us((answer ->> 'scheduled_time')::timestamptz), id
FROM cronstream.requests WHERE kind = 'run-now' AND id LIKE 'fault-run-%'
"""


class Commander:
    """Sends in a thread from ``start`` to ``stop``. What the broker has not acknowledged was never sent."""

    def __init__(self, cluster: Cluster, names: list[str], random: Random) -> None:
        self._cluster = cluster
        self._names = names
        self._random = random
        self._producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{cluster.home.port('kafka')}",
                "enable.idempotence": True,
                "log_level": 0,
            }
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="commander", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No command is sent after it."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(60)

    def requests(self) -> list[Request]:
        """What became of the commands, as the database has it."""
        rows = self._cluster.query(_ANSWERED)
        return [Request(number, job, asked, "run-now", at, at, command) for number, job, asked, at, command in rows]

    def _run(self) -> None:
        number = 0
        while not self._over.wait(SECONDS):
            number += 1
            self._send(f"fault-run-{number}", self._random.choice(self._names))
            self._producer.poll(0)
        self._producer.flush(30)

    def _send(self, command_id: str, name: str) -> None:
        sent_us = self._cluster.clock.wall_us()

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                self._cluster.recorder.record(Command(command_id, sent_us))

        command = {"command": "run-now", "id": command_id, "tenant": "default", "name": name}
        topic = self._cluster.topics.commands
        self._producer.produce(topic, json.dumps(command), f"default/{name}", on_delivery=delivered)
