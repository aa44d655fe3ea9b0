"""What a worker can do: one module a handler."""

from __future__ import annotations

from cronstream.settings import WorkerSettings
from workers.attempt import Handler
from workers.handlers.command import CommandHandler
from workers.handlers.http import HttpHandler
from workers.handlers.log import LogHandler


def all_handlers(settings: WorkerSettings) -> dict[str, Handler]:
    """Every handler by its name. Called inside the event loop that will run them."""
    return {
        "command": CommandHandler(enabled=settings.command_enabled, output_bytes=settings.output_bytes),
        "http": HttpHandler(),
        "log": LogHandler(),
    }
