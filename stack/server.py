"""What a server is to the stack: how it is prepared, started, asked and stopped."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stack.home import Home


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a process once its files are prepared."""

    argv: Sequence[str]
    folder: Path
    environment: Mapping[str, str] = field(default_factory=lambda: clean_environment())


@dataclass(frozen=True, slots=True)
class Server:
    """One of the real servers.

    ``prepare`` writes what the server needs (first start included) and may take
    seconds; ``is_ready`` asks the running server once and never blocks for long.
    """

    name: str
    ports: tuple[str, ...]
    prepare: Callable[[Home], Launch]
    is_ready: Callable[[Home], bool]
    ready_seconds: float
    stop_signal: signal.Signals
    stop_seconds: float


def clean_environment() -> dict[str, str]:
    """A server's environment: none of the developer's settings for some other Postgres or Kafka."""
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": "/", "LANG": "C.UTF-8", "TZ": "UTC"}
