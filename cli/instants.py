"""Instants on the command line: written out, or how long ago."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from cronstream.clock import SystemClock, to_datetime
from cronstream.schedule import ScheduleError, parse_every
from cronstream.schedule.instants import parse_instant

NOW = "now"


class Instant(click.ParamType):
    """An instant with its offset, how long ago it was (``90s``, ``15m``, ``2h``, ``7d``), or ``now``."""

    name = "instant|ago"

    def __init__(self, field: str) -> None:
        self._field = field

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | None:
        if isinstance(value, datetime):
            return value
        if value == NOW:
            return to_datetime(SystemClock().wall_us())
        try:
            return to_datetime(SystemClock().wall_us() - parse_every(value))
        except (ScheduleError, OverflowError):
            pass
        try:
            return to_datetime(parse_instant(self._field, value))
        except (ScheduleError, OverflowError):
            self.fail(
                f'{value!r} is neither how long ago ("15m", "2h") nor "now" nor an instant ("2026-03-08T07:00:00Z")'
            )


class DatabaseInstant(Instant):
    """As an Instant; None for ``now``, which is left to the database's clock: ours may be ahead of it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime | None:
        return None if value == NOW else super().convert(value, param, ctx)
