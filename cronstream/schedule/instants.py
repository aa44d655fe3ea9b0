"""Instants as text and back: microseconds since the epoch on one side, ISO 8601 on the other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cronstream.schedule.errors import ScheduleError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def parse_instant(field: str, text: object) -> int:
    """An ISO 8601 instant of the years 2 to 9999 with `Z` or an offset; ScheduleError naming `field` otherwise."""
    if isinstance(text, str):
        try:
            instant = datetime.fromisoformat(text)
            if instant.tzinfo is not None and instant.astimezone(UTC).year > 1:
                return (instant - _EPOCH) // _MICROSECOND
        except (ValueError, OverflowError):
            pass
    raise ScheduleError(field, text, 'an instant with its offset, such as "2026-03-08T07:00:00Z"')


def _civil(t_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=t_us)


def utc_text(t_us: int) -> str:
    """`2026-03-08T07:00:00Z`, with a fraction only where there is one."""
    return _civil(t_us).isoformat()[:-6] + "Z"


def local_text(t_us: int, offset: int) -> str:
    """`2026-03-08T03:00:00-04:00`: the wall time and the offset that makes it an instant."""
    minutes, seconds = divmod(abs(offset), 60)
    sign = "-" if offset < 0 else "+"
    tail = f":{seconds:02}" if seconds else ""
    return f"{utc_text(t_us + offset * 1_000_000)[:-1]}{sign}{minutes // 60:02}:{minutes % 60:02}{tail}"


def clock_text(wall_second: int) -> str:
    """`02:30`, or `02:30:15`, of a wall time in seconds."""
    text = _civil(wall_second * 1_000_000).strftime("%H:%M:%S")
    return text.removesuffix(":00")


def date_text(wall_second: int) -> str:
    return _civil(wall_second * 1_000_000).date().isoformat()
