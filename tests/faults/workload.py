"""Users at work: they insert the fleet, then edit, pause, delete and insert for as long as the run goes on.

An edit is in the history only once it is known to have committed, with its commit
time. Each transaction leaves a mark in a table of the users' own, so that they can
ask what became of it when Postgres goes away before it has answered.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import Any

import msgspec
import psycopg

from cronstream.clock import to_datetime, to_us
from tests.faults.cluster import Cluster
from tests.faults.events import Edit, Event, Request, Rule
from tests.faults.fleet import Job, edited, fleet, schedule_columns

log = logging.getLogger("faults")

TRANSACTIONS = 12
EDIT_SECONDS = 0.35
KINDS = ("update", "update", "update", "update", "insert", "delete", "roll back", "run now", "backfill")
BACKFILL_SECONDS = 180
_MARKED = """
SELECT (extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint FROM user_marks WHERE number = %s
"""
_EDITABLE = ("second-", "seconds-", "cron-seconds-", "cron-minutes-", "new-")


class Workload:
    """``begin`` inserts; ``start`` lets the edits go on in a thread until ``stop``."""

    def __init__(self, cluster: Cluster, target: str, random: Random) -> None:
        self._cluster = cluster
        self._target = target
        self._random = random
        self.rules: dict[int, Rule] = {}
        """What is in force, by job."""
        self.names: dict[int, str] = {}
        self.edits = 0
        self._marks = 0
        self.lock = threading.Lock()
        """Held while a transaction is under way: who edits elsewhere takes it too."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="users", daemon=True)
        self._connection: psycopg.Connection[Any] | None = None

    def begin(self, minutes: float, scale: float) -> None:
        """Insert the fleet, in some transactions so that intervals do not all count from one instant."""
        self._cluster.query("CREATE TABLE user_marks (number bigint PRIMARY KEY)")
        jobs = list(fleet(self._random, self._cluster.clock.wall_us(), minutes, scale))
        self._random.shuffle(jobs)
        for number in range(TRANSACTIONS):
            self.transact(insert=jobs[number::TRANSACTIONS])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No edit begins after it."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(200)

    def close(self) -> None:
        self._drop_connection()

    def pause_all(self) -> int:
        """The last edit of a run: nothing fires after it. Returns when it was committed."""
        paused = {job_id: _paused(rule) for job_id, rule in self.rules.items() if rule.enabled}
        while (committed := self.transact(update=paused)) is None:
            log.info("nothing was paused: again")
        return committed

    def transact(
        self,
        *,
        insert: Sequence[Job] = (),
        update: dict[int, Rule] | None = None,
        delete: Sequence[int] = (),
        run_now: Sequence[int] = (),
        backfill: Sequence[int] = (),
        roll_back: bool = False,
    ) -> int | None:
        """One transaction of a user; returns its commit time, None if it did not commit.

        Raises psycopg.Error only when Postgres stays away so long that nobody can say what became of it.
        """
        update = update or {}
        inserted: list[tuple[int, Job]] = []
        requests: list[Request] = []
        self._marks += 1
        try:
            connection = self._connected()
            with connection.transaction(force_rollback=roll_back):
                connection.execute("INSERT INTO user_marks VALUES (%s)", [self._marks])
                inserted += [(self._insert(connection, job), job) for job in insert]
                for job_id, rule in update.items():
                    self._update(connection, job_id, rule)
                requests += [self._run_now(connection, job_id) for job_id in run_now]
                requests += [self._backfill(connection, job_id) for job_id in backfill]
                for job_id in delete:
                    connection.execute("DELETE FROM cronstream.job_definitions WHERE job_id = %s", [job_id])
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            log.info("a user's transaction: %s", str(error).strip())
            self._drop_connection()
        committed = self._committed(self._marks)
        if committed is not None:
            events: list[Event] = [Edit(job_id, committed, job.rule) for job_id, job in inserted]
            events += [Edit(job_id, committed, rule) for job_id, rule in update.items()]
            events += [Edit(job_id, committed, None) for job_id in delete]
            asked = [msgspec.structs.replace(request, committed_us=committed) for request in requests]
            self._cluster.recorder.record(*events, *asked)
            self.edits += len(events) + len(asked)
            for job_id, job in inserted:
                self.rules[job_id], self.names[job_id] = job.rule, job.name
            self.rules.update(update)
            for job_id in delete:
                self.rules.pop(job_id)
        return committed

    # ---- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        number = 0
        while not self._over.wait(EDIT_SECONDS):
            number += 1
            with self.lock:
                self._edit_something(number)

    def _edit_something(self, number: int) -> None:
        random = self._random
        editable = [job_id for job_id in self.rules if self.names[job_id].startswith(_EDITABLE)]
        chosen = random.sample(editable, min(len(editable), random.randint(1, 4)))
        kind = random.choice(KINDS)
        if kind == "insert":
            rule = edited(random, Rule(every_us=1_000_000, misfire_policy=random.choice(("FIRE_NOW", "CATCH_UP"))))
            self.transact(insert=[Job(f"new-{number}", rule)])
        elif kind == "delete" and len(editable) > 100:
            self.transact(delete=chosen[:1])
        elif kind == "run now":
            self.transact(run_now=chosen)
        elif kind == "backfill":
            whole = [job_id for job_id, name in self.names.items() if name.startswith("every-minute-")]
            self.transact(backfill=random.sample(whole, 2))
        else:
            changes = {job_id: edited(random, self.rules[job_id]) for job_id in chosen}
            self.transact(update=changes, roll_back=kind == "roll back")

    # ---- SQL -----------------------------------------------------------------------------------

    def _insert(self, connection: psycopg.Connection[Any], job: Job) -> int:
        columns = job.columns(self._target)
        names, marks = ", ".join(columns), ", ".join(["%s"] * len(columns))
        row = connection.execute(
            f"INSERT INTO cronstream.job_definitions ({names}) VALUES ({marks}) RETURNING job_id",
            list(columns.values()),
        ).fetchone()
        assert row is not None
        return int(row[0])

    def _update(self, connection: psycopg.Connection[Any], job_id: int, rule: Rule) -> None:
        columns = {**schedule_columns(rule), "misfire_policy": rule.misfire_policy}
        sets = ", ".join(f"{name} = %s" for name in columns)
        connection.execute(
            f"UPDATE cronstream.job_definitions SET {sets} WHERE job_id = %s", [*columns.values(), job_id]
        )

    def _run_now(self, connection: psycopg.Connection[Any], job_id: int) -> Request:
        row = connection.execute("SELECT cronstream.run_now('default', %s)", [self.names[job_id]]).fetchone()
        assert row is not None
        at_us = to_us(datetime.fromisoformat(row[0]["scheduled_time"]))
        return Request(row[0]["request_id"], job_id, 0, "run-now", at_us, at_us)

    def _backfill(self, connection: psycopg.Connection[Any], job_id: int) -> Request:
        """Of the minutes just over."""
        last_us = self._cluster.clock.wall_us() - 1_000_000
        first_us = last_us - BACKFILL_SECONDS * 1_000_000
        row = connection.execute(
            "SELECT cronstream.backfill('default', %s, %s, %s)",
            [self.names[job_id], to_datetime(first_us), to_datetime(last_us)],
        ).fetchone()
        assert row is not None
        return Request(row[0]["request_id"], job_id, 0, "backfill", first_us, last_us)

    def _committed(self, mark: int) -> int | None:
        """When the transaction of that mark committed; None if it did not. Waits for Postgres."""
        answer: list[tuple[int]] = []

        def asked() -> bool:
            try:
                answer[:] = self._connected().execute(_MARKED, [mark]).fetchall()
            except (psycopg.OperationalError, psycopg.InterfaceError):
                self._drop_connection()
                return False
            return True

        self._cluster.wait(asked, 180, "what became of a transaction", every=0.5)
        return answer[0][0] if answer else None

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = self._cluster.connect()
        return self._connection

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()


def _paused(rule: Rule) -> Rule:
    return msgspec.structs.replace(rule, enabled=False)
