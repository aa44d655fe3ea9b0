"""What a worker can do: one module a handler."""

from __future__ import annotations

from cronstream.clock import Clock
from cronstream.settings import WorkerSettings
from workers.attempt import Handler
from workers.handlers.command import CommandHandler
from workers.handlers.http import HttpHandler
from workers.handlers.kafka import KafkaHandler
from workers.handlers.log import LogHandler
from workers.handlers.python import PythonHandler
from workers.handlers.sql import SqlHandler

PROGRAMS = frozenset({"command", "python"})
"""Handlers that start a process for each run: they have slots of their own."""


def all_handlers(settings: WorkerSettings, clock: Clock) -> dict[str, Handler]:
    """Every handler by its name. Called inside the event loop that will run them. Raises SettingsError."""
    return {
        # Before those that hold something open: it reads a file that may be wrong.
        "sql": SqlHandler(settings, clock),
        "command": CommandHandler(settings),
        "http": HttpHandler(clock, settings.http_allow),
        "kafka": KafkaHandler(settings, clock),
        "log": LogHandler(),
        "python": PythonHandler(settings),
    }
