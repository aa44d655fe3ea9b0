"""Procrastinate's periodic tasks: MODE SIZE AT UNTIL FILE, PEER_DSN in the environment. AT is a whole second.

MODE dispatch runs the periodic deferrer alone, what it deferred is counted; MODE execute runs a
worker with ten slots, which defers as well. MODE queue has nothing periodic: the tasks are deferred by
hand while a worker runs them. When things happened is what its own events table says.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import procrastinate
from procrastinate.periodic import PeriodicDeferrer

DEFERRED_AT_ONCE = 500

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=os.environ["PEER_DSN"], min_size=2, max_size=12)
)


@app.task(name="job")
async def job(timestamp: int, pad: str) -> None:
    """The job."""


async def run(mode: str, size: int, at: float, until: float, file: str) -> None:
    """Set up, run until all is done or the deadline, write the events' times."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        if mode != "queue":
            register(size, at)
        assert time.time() < at - 1, "the set-up took too long"
        if mode == "dispatch":
            working = asyncio.create_task(PeriodicDeferrer(app.periodic_registry).worker())
        else:
            working = asyncio.create_task(app.run_worker_async(concurrency=10, delete_jobs="never"))
        if mode == "queue":
            await asyncio.sleep(at - time.time())
            await defer(size)
        kind = "deferred" if mode == "dispatch" else "started"
        query = "SELECT count(*) FROM procrastinate_events WHERE type = %(kind)s"
        while time.time() < until and not working.done():
            await asyncio.sleep(0.5)
            row = await app.connector.execute_query_one_async(query, kind=kind)
            if row["count"] >= size:
                break
        rows = await app.connector.execute_query_all_async(
            "SELECT (extract(epoch FROM at) * 1000000)::bigint AS us FROM procrastinate_events WHERE type = %(kind)s",
            kind=kind,
        )
        Path(file).write_text("".join(f"{row['us']}\n" for row in rows))  # noqa: ASYNC240
        if working.done():
            working.result()
        os._exit(0)


def register(size: int, at: float) -> None:
    """Daily tasks, so that the instant before is long past and nothing is owed at the start."""
    when = datetime.fromtimestamp(at, UTC)
    for number in range(size):
        app.periodic_registry.register_task(
            task=job,
            cron=f"{when.minute} {when.hour} * * * {when.second}",
            periodic_id=f"job-{number}",
            configure_kwargs={"task_kwargs": {"pad": f"{number:0256d}"}},
        )


async def defer(size: int) -> None:
    """As its docs advise for many: in batches."""
    for first in range(0, size, DEFERRED_AT_ONCE):
        count = min(DEFERRED_AT_ONCE, size - first)
        await job.batch_defer_async(*({"timestamp": 0, "pad": f"{first + number:0256d}"} for number in range(count)))


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), sys.argv[5]))
