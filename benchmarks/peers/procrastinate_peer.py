"""Procrastinate's periodic tasks: MODE SIZE AT UNTIL FILE, PEER_DSN in the environment. AT is a whole minute.

MODE dispatch runs the periodic deferrer alone, what it deferred is counted; MODE execute runs a
worker with ten slots, which defers as well. When things happened is what its own events table says.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import procrastinate
from procrastinate.periodic import PeriodicDeferrer

app = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=os.environ["PEER_DSN"], min_size=2, max_size=12),
    periodic_defaults={"max_delay": 2},
)


@app.task(name="job")
async def job(timestamp: int, pad: str) -> None:
    """The job."""


async def run(mode: str, size: int, at: float, until: float, file: str) -> None:
    """Set up, run until all is done or the deadline, write the events' times."""
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for number in range(size):
            app.periodic_registry.register_task(
                task=job,
                cron="* * * * *",
                periodic_id=f"job-{number}",
                configure_kwargs={"task_kwargs": {"pad": f"{number:0256d}"}},
            )
        # What the minute before owes is not deferred any more two seconds after it began.
        assert time.time() < at - 2, "the set-up took too long"
        await asyncio.sleep(max(0.0, 3 - (time.time() % 60)))
        if mode == "dispatch":
            working = asyncio.create_task(PeriodicDeferrer(app.periodic_registry, max_delay=2).worker())
        else:
            working = asyncio.create_task(app.run_worker_async(concurrency=10, delete_jobs="never"))
        kind = "deferred" if mode == "dispatch" else "started"
        query = "SELECT count(*) FROM procrastinate_events WHERE type = %(kind)s"
        while time.time() < until and not working.done():
            await asyncio.sleep(1 if time.time() < at + 5 else 0.5)
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


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), sys.argv[5]))
