"""Log lines: a sentence, then its fields as key=value; one format for every process."""

from __future__ import annotations

import logging
import sys
from time import gmtime, strftime

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "data"}
"""What a record holds beside its fields; ``data`` is what mode puts there."""


class FieldsFormatter(logging.Formatter):
    """``2026-11-29T17:00:00.123Z INFO coordinator.term elected leader action=elected token=7``.

    One line, and a traceback, where there is one, on lines of its own that begin with blanks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._second = (-1, "")
        """The last line's, and how it is shown: a busy process says much within one."""

    def usesTime(self) -> bool:
        return False  # formatMessage shows it

    def formatMessage(self, record: logging.LogRecord) -> str:
        message = record.message
        if not message.isprintable():
            message = " / ".join(filter(None, map(str.strip, message.splitlines())))
        line = f"{self._shown(record.created)} {record.levelname} {record.name} {message}"
        fields = [f"{key}={_text(value)}" for key, value in vars(record).items() if key not in _STANDARD]
        return " ".join([line, *fields]) if fields else line

    def _shown(self, created: float) -> str:
        second = int(created)
        if self._second[0] != second:
            self._second = (second, strftime("%Y-%m-%dT%H:%M:%S", gmtime(second)))
        return f"{self._second[1]}.{int((created - second) * 1000):03d}Z"

    def formatException(self, ei: object) -> str:
        return "\n".join(f"  {line}" for line in super().formatException(ei).splitlines())  # type: ignore[arg-type]


class Thinned(logging.Filter):
    """Lets the Kafka clients say a thing of one kind once in a while, and says how often they were kept quiet.

    They log every try to connect, and while the broker is away they try twenty times a second.
    """

    EVERY_SECONDS = 5.0

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str], tuple[float, int]] = {}
        """By kind: when one was let through, and how many were not since."""

    def filter(self, record: logging.LogRecord) -> bool:
        kind = _kind(record)
        if kind is None:
            return True
        since, kept = self._said.get(kind, (float("-inf"), 0))
        if record.created - since < self.EVERY_SECONDS:
            self._said[kind] = (since, kept + 1)
            return False
        self._said[kind] = (record.created, 0)
        if kept:
            record.not_shown = kept
        return True


def _kind(record: logging.LogRecord) -> tuple[str, str] | None:
    """Of a Kafka client's line its logger, and what it is about; None for anybody else's."""
    if record.name.endswith(".librdkafka"):
        return record.name, record.getMessage().partition(" ")[0]  # such as FAIL
    if getattr(record, "action", None) == "client_error":
        return record.name, str(getattr(record, "code", ""))
    if record.name.partition(".")[0] == "aiokafka":
        return record.name, str(record.msg)  # before its values are put in
    return None


def _text(value: object) -> str:
    if type(value) is int:  # what most are; a member of an enumeration is not
        return str(value)
    match value:
        case str():
            text = value
        case float():
            text = f"{value:.6g}"
        case list() | tuple():
            text = ",".join(map(str, value))
        case _:
            text = str(value)
    return text if text.split(maxsplit=1) == [text] else repr(text)  # there is a blank in it, or nothing


def set_up(level: str) -> None:
    """Send everything from ``level`` up to standard error, in UTC; what libraries warn of as well."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FieldsFormatter())
    handler.addFilter(Thinned())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(True)
    # No line shows them, and a worker that logs each run would look them up each time.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None
