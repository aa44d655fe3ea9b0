"""Celery with RedBeat: the app, and two commands.

``python redbeat_peer.py load SIZE AT`` writes entries for beat; ``... send SIZE AT`` queues tasks from that
instant on, without beat. PEER_REDIS names the Redis, PEER_FILE where workers write.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime, timedelta

from celery import Celery
from celery.schedules import schedule
from redbeat import RedBeatSchedulerEntry

app = Celery("redbeat_peer", broker=os.environ["PEER_REDIS"])
app.conf.update(
    redbeat_redis_url=os.environ["PEER_REDIS"],
    beat_scheduler="redbeat.RedBeatScheduler",
    beat_max_loop_interval=0.1,
    redbeat_lock_timeout=300,
    task_ignore_result=True,
    worker_prefetch_multiplier=100,
    timezone="UTC",
)


@app.task(name="job")
def job(pad: str) -> None:
    """Says when it ran, in a file of its process."""
    _out().write(f"{time.time_ns() // 1000}\n")


_files: dict[int, object] = {}


def _out():  # type: ignore[no-untyped-def]
    pid = os.getpid()
    if pid not in _files:
        _files[pid] = open(f"{os.environ['PEER_FILE']}.{pid}.part", "w", buffering=1)  # noqa: SIM115
    return _files[pid]


def load(size: int, at: float) -> None:
    """Entries that run every hour, first at that instant."""
    last = datetime.fromtimestamp(at, UTC) - timedelta(hours=1)
    for number in range(size):
        entry = RedBeatSchedulerEntry(
            f"job-{number}", "job", schedule(3600, app=app), args=[f"{number:0256d}"], app=app
        )
        entry.last_run_at = last
        entry.save()


def send(size: int, at: float) -> None:
    """As fast as one process can."""
    time.sleep(max(0.0, at - time.time()))
    for number in range(size):
        job.delay(f"{number:0256d}")


if __name__ == "__main__":
    {"load": load, "send": send}[sys.argv[1]](int(sys.argv[2]), float(sys.argv[3]))
