"""The target of the workload's jobs: ``python -m tests.faults.receiver PORT FILE``.

Every call is appended to FILE before it is answered. The path says how:

    /ok        200          /fail/N    500 to attempts up to N, then 200
    /slow/MS   200 after so many milliseconds
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from aiohttp import web

from cronstream.clock import SystemClock
from tests.faults.events import Execution
from tests.faults.history import Recorder


def serve(port: int, file: Path) -> None:
    """Until SIGTERM."""
    clock, recorder = SystemClock(), Recorder(file)

    async def called(request: web.Request) -> web.Response:
        at_us = clock.wall_us()
        headers = request.headers
        job_id, scheduled_us, request_id = (int(part) for part in headers["Idempotency-Key"].split("-"))
        attempt = int(headers["X-Attempt"])
        recorder.record(Execution(job_id, scheduled_us, request_id, at_us, attempt, int(headers["X-Fencing-Token"])))
        await request.read()
        _, how, *number = request.path.split("/")
        if how == "slow":
            await clock.asleep(int(number[0]) / 1000)
        if how == "fail" and attempt <= int(number[0]):
            return web.Response(status=500, text="told to fail")
        return web.Response(text="ok")

    async def health(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/health", health)
        app.router.add_post("/{how:.*}", called)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=1024).start()
        over = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
        await over.wait()
        await runner.cleanup()
        recorder.close()

    asyncio.run(run())


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
