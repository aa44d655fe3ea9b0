"""Log lines: a sentence, then its fields as key=value; one format for every process."""

from __future__ import annotations

import logging
import sys
from time import gmtime

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class FieldsFormatter(logging.Formatter):
    """``2026-11-29T17:00:00Z INFO coordinator.term elected leader action=elected token=7``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={_text(value)}" for key, value in vars(record).items() if key not in _STANDARD)
        line = super().formatMessage(record)
        return f"{line} {fields}" if fields else line


def _text(value: object) -> str:
    text = str(value)
    return repr(text) if any(character.isspace() for character in text) or not text else text


def set_up(level: str) -> None:
    """Send everything from ``level`` up to standard error, in UTC."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = FieldsFormatter()
    formatter.converter = gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler], force=True)
