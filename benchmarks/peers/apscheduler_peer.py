"""APScheduler 3, Postgres job store, its default pool of ten threads: SIZE AT UNTIL FILE, PEER_URL in the environment.

Runs in the peers' environment. Jobs are written as the store writes them, but many in a statement.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from datetime import UTC, datetime, timedelta

from apscheduler.job import Job
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.interval import IntervalTrigger
from apscheduler.util import datetime_to_utc_timestamp

times: list[float] = []


def fire(pad: str) -> None:
    """The job."""
    times.append(time.time())


def main(size: int, at: float, until: float, file: str) -> None:
    """Set up, wait for the instant, write down when each job began."""
    store = SQLAlchemyJobStore(url=os.environ["PEER_URL"])
    scheduler = BackgroundScheduler(
        jobstores={"default": store}, job_defaults={"misfire_grace_time": 3600, "coalesce": True}, timezone=UTC
    )
    scheduler.start(paused=True)
    due = datetime.fromtimestamp(at, UTC)
    trigger = IntervalTrigger(hours=1, start_date=due, timezone=UTC)
    rows = []
    for number in range(size):
        job = Job(
            scheduler,
            id=f"job-{number}",
            func="apscheduler_peer:fire",
            trigger=trigger,
            args=(f"{number:0256d}",),
            kwargs={},
            executor="default",
            name="fire",
            misfire_grace_time=3600,
            coalesce=True,
            max_instances=1,
            next_run_time=due,
        )
        rows.append(
            {
                "id": job.id,
                "next_run_time": datetime_to_utc_timestamp(job.next_run_time),
                "job_state": pickle.dumps(job.__getstate__(), store.pickle_protocol),
            }
        )
    with store.engine.begin() as connection:
        for first in range(0, size, 5000):
            connection.execute(store.jobs_t.insert(), rows[first : first + 5000])
    assert datetime.now(UTC) < due - timedelta(seconds=1), "the set-up took too long"
    scheduler.resume()
    while len(times) < size and time.time() < until:
        time.sleep(0.05)
    with open(file, "w") as out:
        out.writelines(f"{int(value * 1e6)}\n" for value in list(times))
    os._exit(0)  # a backlog would be worked off first


if __name__ == "__main__":
    import apscheduler_peer

    apscheduler_peer.main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4])
