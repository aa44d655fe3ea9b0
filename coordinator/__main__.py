"""``python -m coordinator``: decides when. Settings come from CRONSTREAM_* variables."""

from __future__ import annotations

import os
import signal
import sys

from coordinator.service import Service
from cronstream import logs
from cronstream.clock import SystemClock
from cronstream.settings import CoordinatorSettings, SettingsError, read_settings


def main() -> int:
    """Run until SIGTERM or SIGINT; exit status 2 for wrong settings."""
    try:
        settings = read_settings(CoordinatorSettings, os.environ)
    except SettingsError as error:
        print(f"coordinator: {error}", file=sys.stderr)
        return 2
    logs.set_up(settings.log_level)
    service = Service(settings, SystemClock())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    service.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
