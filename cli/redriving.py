"""What can be done about a dead letter, and the doing: the run tried again, or the record produced again."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import psycopg
from confluent_kafka import Producer
from psycopg.rows import namedtuple_row

from cli.errors import Failure
from cronstream import dead_letters
from cronstream.settings import Installation
from sql.queries import load
from streams.letters import own_headers

queries = load("dead_letters")
RUN_REASONS = frozenset({"exhausted", "final"})
FLUSH_SECONDS = 10.0


class Letter(NamedTuple):
    """A letter that is about to be decided."""

    letter_id: int
    state: str
    reason: str
    topic: str
    partition: int
    offset: int
    job_ids: list[int]
    scheduled_time: Any
    request_id: int | None
    attempts: int | None
    key: bytes | None
    value: bytes
    headers: list[tuple[str, str]]
    cut: bool

    @property
    def place(self) -> str:
        """Where its record stood."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


def refusal(letter: Letter, topics: Collection[str], commands: str, *, force: bool = False) -> str | None:
    """Why a letter cannot be redriven, and what to do instead; None if it can.

    ``commands`` is the topic whose poison stays poison, whatever version reads it, unless ``force`` says otherwise.
    """
    if letter.state != "open":
        return f"is {letter.state} already"
    if letter.reason in RUN_REASONS:
        if None in (letter.scheduled_time, letter.request_id, letter.attempts) or len(letter.job_ids) != 1:
            return "does not say which run it is about: discard it"
        return None
    if letter.reason == dead_letters.STALE_TOKEN:
        return (
            "comes from a leader that was followed by another, which published what it stood for; "
            "it would be refused again: discard it"
        )
    if letter.reason == dead_letters.REFUSED_COMMAND:
        return "is a command that was answered for good under its id: send it mended under a new one, and discard it"
    if letter.cut:
        return f"holds only the beginning of its record, which may still stand at {letter.place}: discard it"
    if letter.topic == commands and letter.reason == dead_letters.POISON_RECORD and not force:
        return (
            "is no command and would be none again: send it mended, and discard this one "
            "(--force produces it again as it is, for a version that can read it)"
        )
    if letter.topic not in topics:
        return f"comes from no topic of this installation ({letter.topic or 'it does not say which'}): discard it"
    return None


class Redriving:
    """Decides letters, each in a transaction of its own."""

    def __init__(self, connection: psycopg.Connection[Any], settings: Installation, *, force: bool = False) -> None:
        """``force``: poison of the commands topic is produced again as well."""
        self._connection = connection
        self._settings = settings
        self._force = force
        self._topics = {spec.name for spec in settings.topics.specs(settings.partitions)}
        self._producer: Producer | None = None

    def redrive(self, letter_id: int) -> str:
        """Try again; what was done. Raises Failure, or what Postgres says against it."""
        with self._connection.transaction():
            letter = self._locked(letter_id)
            why = refusal(letter, self._topics, self._settings.topics.commands, force=self._force)
            if why is not None:
                raise Failure(f"dead letter {letter_id} {why}")
            if letter.reason in RUN_REASONS:
                parameters = {**letter._asdict(), "job_id": letter.job_ids[0]}
                self._connection.execute(queries["redrive_run"], parameters)  # decides the letter as well
                return f"job {letter.job_ids[0]} runs again, its attempts numbered on from {letter.attempts}"
            self._produce(letter)
            self._connection.execute(queries["decide"], {"letter_id": letter_id, "state": "redriven"})
        return f"its record is produced to {letter.topic}[{letter.partition}] again"

    def discard(self, letter_id: int) -> str:
        """Let it be; what was done. Raises Failure."""
        with self._connection.transaction():
            letter = self._locked(letter_id)
            if letter.state != "open":
                raise Failure(f"dead letter {letter_id} is {letter.state} already")
            self._connection.execute(queries["decide"], {"letter_id": letter_id, "state": "discarded"})
        return "discarded"

    def _locked(self, letter_id: int) -> Letter:
        with self._connection.cursor(row_factory=namedtuple_row) as cursor:
            row = cursor.execute(queries["lock_letter"], {"letter_id": letter_id}).fetchone()
        if row is None:
            raise Failure(f"there is no dead letter {letter_id}")
        return Letter(*row)

    def _produce(self, letter: Letter) -> None:
        """Acknowledged when this returns. Raises Failure."""
        if self._producer is None:
            self._producer = Producer(
                {"bootstrap.servers": self._settings.kafka, "enable.idempotence": True, "message.timeout.ms": 9000}
            )
        problems: list[str] = []
        headers = own_headers(letter.headers)
        self._producer.produce(
            letter.topic,
            letter.value,
            letter.key,
            partition=letter.partition,
            headers=[*headers],
            on_delivery=lambda error, _: problems.append(error.str()) if error is not None else None,
        )
        if self._producer.flush(FLUSH_SECONDS) > 0 or problems:
            why = problems[0] if problems else "no acknowledgement"
            raise Failure(f"dead letter {letter.letter_id}: Kafka did not take its record: {why}")
