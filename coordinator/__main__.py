"""``python -m coordinator``: decides when. Settings come from CRONSTREAM_* variables."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading

from coordinator.election import read_leader
from coordinator.etcd import EtcdUnavailable
from coordinator.service import Service
from cronstream import garbage, logs
from cronstream.clock import SystemClock
from cronstream.settings import CoordinatorSettings, SettingsError, read_settings

log = logging.getLogger("coordinator")


_SWITCH_SECONDS = 0.002
"""The dispatcher wakes for what is due, and waits no longer than this for another thread to let go of Python."""


def main() -> int:
    """Run until SIGTERM or SIGINT; exit status 2 for wrong settings."""
    try:
        settings = read_settings(CoordinatorSettings, os.environ)
    except SettingsError as error:
        print(f"coordinator: {error}", file=sys.stderr)
        return 2
    logs.set_up(settings.log_level)
    sys.setswitchinterval(_SWITCH_SECONDS)
    garbage.look_rarely()
    log.info("The coordinator runs", extra={"action": "start", "node": settings.node})
    threading.Thread(target=_say_who_leads, args=(settings,), name="who-leads", daemon=True).start()
    service = Service(settings, SystemClock())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    service.run()
    log.info("The coordinator has stopped", extra={"action": "stop"})
    return 0


def _say_who_leads(settings: CoordinatorSettings) -> None:
    """Once, at the start, so that a standby's log is not silent; when etcd is away the election says so."""
    with contextlib.suppress(EtcdUnavailable):
        leader = read_leader(settings.etcd, f"/{settings.installation}")
        if leader is not None and leader.node != settings.node:
            log.info(
                "It waits: %s leads",
                leader.node,
                extra={"action": "standby", "leader": leader.node, "token": leader.token, "since": leader.since},
            )


if __name__ == "__main__":
    sys.exit(main())
