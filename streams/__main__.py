"""``python -m streams``: one streams process. SIGTERM makes it leave the group and end."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from typing import Any

import faust
import mode
from aiohttp import web

from cronstream import garbage, logs
from cronstream.clock import SystemClock
from cronstream.settings import SettingsError, StreamsSettings, read_settings
from streams.app import StreamsApp, changelogs, new_app
from streams.owners import Owners
from streams.serving import JsonRunner
from streams.topics import TopicsError, prepare
from streams.watchdog import Standstill, Watchdog
from streams.web import StatusPages

log = logging.getLogger("streams")
_SERVICE = re.compile(r"\[\^-*(\w+)\]:?\s*")


class Company(mode.Service):
    """What runs beside the app: status pages, ownership, watchdog."""

    def __init__(self, app: StreamsApp, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._app = app
        self._owners = Owners(app.settings, app.clock, app.owned)
        self._watchdog = Watchdog(app, app.clock)
        self._runner: JsonRunner | None = None
        self._publishing: asyncio.Task[None] | None = None

    async def on_start(self) -> None:
        settings = self._app.settings
        self._runner = JsonRunner(StatusPages(self._app, self._owners).routes(), access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, settings.status_host, settings.status_port).start()
        host, port = self._runner.addresses[0][:2]
        self._publishing = asyncio.create_task(self._owners.run(settings.status_address or f"{host}:{port}"))
        log.info("Status pages are up", extra={"action": "listen", "address": f"{host}:{port}"})

    @mode.Service.task
    async def _watch(self) -> None:
        try:
            await self._watchdog.run()
        except Standstill as standstill:
            log.critical("Standstill, so this process ends: %s", standstill, extra={"action": "exit"})
            os._exit(70)

    async def on_stop(self) -> None:
        if self._publishing is not None:
            self._publishing.cancel()
            await asyncio.wait({self._publishing}, timeout=1.0)
        if self._runner is not None:
            await self._runner.cleanup()


class Worker(faust.Worker):
    """Faust's worker, with our logging, without a spinner, and without its second of sleep at the end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.spinner = None  # it writes to the terminal's cursor, terminal or not

    def _setup_logging(self) -> None:
        """Is set up already; Faust would put its own format in its place."""

    async def _sentinel_task(self) -> None:
        """Nothing is left to wait for."""


def main() -> None:
    """Settings → app → worker."""
    try:
        settings = read_settings(StreamsSettings, os.environ)
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        _set_up_logs(settings.log_level)
        log.info("Streams begin", extra={"action": "start", "node": settings.node})
        prepare(settings, changelogs(settings))
    except (SettingsError, TopicsError) as error:
        sys.exit(f"streams: {error}")
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    app = new_app(settings, SystemClock())
    garbage.look_rarely()
    worker = Worker(
        app,
        Company(app),
        loglevel=settings.log_level.lower(),
        loop=loop,
        quiet=True,
        redirect_stdouts=False,
    )
    try:
        worker.execute_from_commandline()
    finally:
        log.info("Streams have stopped", extra={"action": "stop"})


def _set_up_logs(level: str) -> None:
    logs.set_up(level)
    if level != "DEBUG":
        for name in ("faust", "mode", "aiokafka"):
            logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))
    quiet = logging.INFO if level == "DEBUG" else logging.WARNING

    def tidy(record: logging.LogRecord) -> bool:
        """Faust's services say who they are in the text, and under our names where we extend them."""
        own_name = _SERVICE.match(str(record.msg))
        if own_name is None:
            return True
        record.msg = str(record.msg)[own_name.end() :]
        record.service = own_name[1]
        return record.levelno >= quiet

    for handler in logging.getLogger().handlers:
        handler.addFilter(tidy)


if __name__ == "__main__":
    main()
