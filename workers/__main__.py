"""A worker process: settings, wiring, signals. ``python -m workers``."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

from cronstream import garbage, logs
from cronstream.clock import Clock, SystemClock
from cronstream.settings import SettingsError, WorkerSettings, read_settings
from workers.consumer import CannotWork, PollThread
from workers.handlers import all_handlers
from workers.reporter import Reporter
from workers.runner import Runner
from workers.service import Service
from workers.trust import Trust

logger = logging.getLogger("workers")

STATS_SECONDS = 10.0


async def serve(settings: WorkerSettings, clock: Clock) -> None:
    """Work until SIGTERM. Raises whatever makes going on impossible."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def end(problem: BaseException | None) -> None:
        if ended.done():
            return
        if problem is None:
            ended.set_result(None)
        else:
            ended.set_exception(problem)

    trust = Trust(settings.session_timeout_seconds, clock.boot_ns())
    service = Service(settings.topics.attempts, clock)
    reporter = Reporter(
        settings,
        clock,
        on_finished=service.finished,
        on_outcome=service.outcome_acknowledged,
        on_failure=end,
    )
    handlers = all_handlers(settings, clock)
    runner = Runner(settings.slots, settings.process_slots, handlers, reporter, clock, trust, end)
    service.connect(runner, reporter)
    poll = PollThread(settings, clock, trust, service, loop, end)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, poll.stop)
    stats = loop.create_task(_log_stats(service, clock))
    poll.start()
    logger.info(
        "The worker is up",
        extra={
            "action": "up",
            "node": settings.node,
            "slots": settings.slots,
            "process_slots": settings.process_slots,
            "command_enabled": settings.command_enabled,
        },
    )
    await ended
    stats.cancel()
    await reporter.close()
    for handler in handlers.values():
        await handler.close()
    logger.info("The worker has left", extra={"action": "down", **service.stats()})


async def _serve_or_die(settings: WorkerSettings) -> None:
    try:
        await serve(settings, SystemClock())
    except BaseException as problem:
        expected = isinstance(problem, (SettingsError, CannotWork))
        logger.critical(
            "The worker ends%s", f": {problem}" if expected else "", extra={"action": "died"}, exc_info=not expected
        )
        logging.shutdown()
        # At once: threads may hang in the client library. Commands die with this process, and what
        # was taken is taken over with the done-log.
        os._exit(1)


async def _log_stats(service: Service, clock: Clock) -> None:
    while True:
        await clock.asleep(STATS_SECONDS)
        logger.info("What the worker does", extra={"action": "stats", **service.stats()})


def main() -> int:
    """The process; its exit code."""
    try:
        settings = read_settings(WorkerSettings, os.environ)
    except SettingsError as error:
        print(f"workers: {error}", file=sys.stderr)
        return 2
    logs.set_up(settings.log_level)
    garbage.look_rarely()
    asyncio.run(_serve_or_die(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
