"""``python -m connectors``: register the connector, then watch it until SIGTERM.

``python -m connectors register`` ends once the first heartbeat has been delivered.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

import psycopg

from connectors.connect_api import ConnectRefused, ConnectUnavailable
from connectors.observation import Observer
from connectors.registration import Registration
from connectors.watchdog import NotDelivering, Watchdog
from cronstream.clock import SystemClock
from cronstream.logs import set_up
from cronstream.settings import CaptureSettings, SettingsError, read_settings
from sql import connect
from sql.migrate import SchemaError, schema_version_check

log = logging.getLogger("connectors")

READY_SECONDS = 90.0


def main(arguments: list[str]) -> int:
    """Run; the exit code."""
    if arguments not in ([], ["register"]):
        print("usage: python -m connectors [register]", file=sys.stderr)
        return 2
    clock, stop = SystemClock(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        settings = read_settings(CaptureSettings, os.environ)
        set_up(settings.log_level)
        registration = Registration(settings, clock)
        with connect(settings, "capture") as conn:
            schema_version_check(conn)
        with Observer(settings, registration.api, registration.name, registration.slot) as observer:
            watchdog = Watchdog(settings, registration, observer, clock)
            _register(registration)
            if arguments == ["register"]:
                watchdog.until_delivering(stop, READY_SECONDS)
                print(f"capture: {registration.name} delivers to {settings.topics.changes}")
            else:
                log.info("Capture is watched", extra={"action": "start", "node": settings.node})
                watchdog.run(stop)
                log.info("The watch has ended", extra={"action": "stop"})
    except (SettingsError, SchemaError, NotDelivering, psycopg.OperationalError) as error:
        print(f"python -m connectors: {error}", file=sys.stderr)
        return 1
    return 0


def _register(registration: Registration) -> None:
    """Once at the start, so that a changed configuration takes effect; later tries are the watchdog's."""
    try:
        registration.register()
    except (ConnectUnavailable, ConnectRefused) as error:
        log.warning("Not registered yet, trying on: %s", error, extra={"action": "register"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
