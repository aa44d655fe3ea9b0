"""One term, from fencing to its end.

1. clocks compared, 2. Postgres fenced, 3. Kafka fenced, 4. the tail of triggers
read and applied, 5. the parts started: writer, reader, feed, clock; then the
dispatcher runs until the term is over or the process is asked to stop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import psycopg

import sql
from coordinator.arrivals import Mailbox
from coordinator.asking import OPTIONS
from coordinator.database_clock import ClocksDiffer, DatabaseClock
from coordinator.dispatcher import Dispatcher
from coordinator.election import etcd_identity
from coordinator.epoch import NotFit, fence_postgres
from coordinator.etcd import EtcdUnavailable
from coordinator.feed import Feed
from coordinator.publisher import Publisher
from coordinator.reader import Reader
from coordinator.tail import Tail, read_tail
from coordinator.trust import Term, TermOver
from coordinator.writer import Writer
from cronstream import pulse
from cronstream.clock import Clock
from cronstream.fault_points import reach
from cronstream.settings import CoordinatorSettings
from sql.queries import load

log = logging.getLogger(__name__)
queries = load("coordinator")

# What a leader that is asked to stop still writes; the rest its successor reads off the log.
_DRAIN_SECONDS = 0.3
# Longer than a step of taking office or a turn of dispatch takes, timeouts included. A leader that stands still keeps
# its lease, as that is another thread's, so it must end for another to lead.
_STANDSTILL_SECONDS = 45


class Office:
    """What one term holds. Made when elected, dropped when the term is over."""

    def __init__(self, settings: CoordinatorSettings, term: Term, clock: Clock, stop: threading.Event) -> None:
        self._settings = settings
        self._term = term
        self._clock = clock
        self._stop_process = stop
        self._stop = threading.Event()
        self._database_clock = DatabaseClock(settings, clock)
        self._began_ns = clock.boot_ns()
        self._closing: list[Callable[[], None]] = [self._database_clock.close]
        self.dispatcher: Dispatcher | None = None
        self.reader: Reader | None = None
        self.writer: Writer | None = None

    def hold(self) -> None:
        """Lead until the end. Raises TermOver; returns when the process is asked to stop."""
        pulse.watch("the leader", _STANDSTILL_SECONDS)
        try:
            self._take_office()
            assert self.dispatcher is not None
            self.dispatcher.run(self._stop_process)
        except ClocksDiffer as error:
            raise TermOver(str(error)) from None
        except sql.OtherInstallation as error:
            raise NotFit(str(error)) from None
        except psycopg.Error as error:
            raise TermOver(f"Postgres, while taking office: {str(error).strip()}") from None
        finally:
            pulse.rest()
            self._stop.set()
            for close in reversed(self._closing):
                close()

    def _take_office(self) -> None:
        settings, term = self._settings, self._term
        took: dict[str, float] = {}
        self._database_clock.read()
        with sql.connect(settings, "office", autocommit=True, options=OPTIONS) as connection:
            token = fence_postgres(connection, revision=term.token, node=settings.node, identity=self._etcd_identity)
            self._passed("office.postgres_fenced", took)
            publisher = Publisher(settings, term, self._clock)
            self._closing.append(publisher.close)
            publisher.fence()
            self._passed("office.kafka_fenced", took)
            stored = dict(connection.execute(queries["read_offsets"]).fetchall())
            tail = read_tail(settings, term, stored)
            self._passed("office.tail_read", took)
        tailed = {"tail_jobs": len(tail.newest)}
        log.info("took office", extra={"action": "took_office", "token": token, **tailed, **took})
        self._start_parts(publisher, token, tail)

    def _passed(self, point: str, took: dict[str, float]) -> None:
        """A step of taking office is done; notes the seconds since it began."""
        reach(point)
        pulse.beat()
        took[f"{point.partition('.')[2]}_after"] = (self._clock.boot_ns() - self._began_ns) / 1e9

    def _etcd_identity(self, make: bool) -> str | None:
        try:
            return etcd_identity(self._settings.etcd, f"/{self._settings.installation}", make=make)
        except EtcdUnavailable as error:
            raise TermOver(f"etcd, while taking office: {error}") from None

    def _start_parts(self, publisher: Publisher, token: int, tail: Tail) -> None:
        settings, end_term = self._settings, self._end_term
        mailbox = Mailbox()
        reader = Reader(settings, self._clock, self._database_clock, mailbox, self._stop, end_term, tail)
        requests = reader.requests
        writer = Writer(
            settings, token, self._clock, unmatched=reader.unmatched, stepped=requests.stepped, end_term=end_term
        )
        feed = Feed(
            settings,
            self._stop,
            changed=reader.changed,
            requested=requests.requested,
            beat=reader.beat,
            end_term=end_term,
        )
        self._closing += [
            lambda: writer.stop(drain_seconds=_DRAIN_SECONDS if self._stop_process.is_set() else 0),
            reader.join,
            feed.close,
        ]
        self.dispatcher = Dispatcher(
            settings, self._term, token, self._database_clock, publisher, writer, mailbox, tail
        )
        self.reader, self.writer = reader, writer
        for rows in tail.rows():
            writer.put(rows)
        self._term.on_over(mailbox.wake)
        writer.start()
        feed.start()
        reader.start(writer)
        self._database_clock.watch(self._stop, end_term)

    def _end_term(self, reason: str) -> None:
        self._term.end(reason)

    def figures(self) -> dict[str, Any]:
        """What this term has done so far; an answer for operators, read from other threads."""
        dispatcher, reader, writer = self.dispatcher, self.reader, self.writer
        if dispatcher is None or reader is None or writer is None:
            return {}
        return {
            "token": dispatcher.token,
            "seconds_in_office": round((self._clock.boot_ns() - self._began_ns) / 1e9, 3),
            "loaded": dispatcher.loaded,
            "loaded_through": reader.loaded_through,
            "backlog": dispatcher.backlog,
            **dispatcher.figures.shown(self._began_ns),
            "requests_open": reader.requests.open,
            "capture_missed": reader.capture_missed,
            "writes_waiting": writer.waiting,
            "oldest_write_seconds": round(writer.waiting_seconds(), 3),
        }
