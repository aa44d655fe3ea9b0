"""Keeps capture alive: looks every few seconds, takes the one next step, says why."""

from __future__ import annotations

import logging
import threading

import psycopg

from connectors.connect_api import ConnectRefused, ConnectUnavailable
from connectors.observation import Observer
from connectors.registration import Registration
from connectors.seen import Observation
from connectors.verdict import Action, Memory, Verdict, verdict
from cronstream.clock import Clock
from cronstream.settings import CaptureSettings

log = logging.getLogger(__name__)

# Heartbeats that may be missing before they count as overdue, and what a step of the way may take.
_MISSED_BEATS = 3
_SLACK_SECONDS = 4.0


class NotDelivering(RuntimeError):
    """Capture did not deliver a heartbeat by the deadline; the message says what was seen last."""


class Watchdog:
    """One thread's loop over ``step``."""

    def __init__(self, settings: CaptureSettings, registration: Registration, observer: Observer, clock: Clock) -> None:
        self._watch_seconds = settings.capture_watch_seconds
        self._stale_seconds = _MISSED_BEATS * settings.capture_heartbeat_seconds + _SLACK_SECONDS
        self._registration = registration
        self._observer = observer
        self._clock = clock
        # As if just acted: whoever starts a watchdog has registered right before.
        self._memory = Memory(since_action_seconds=0.0)
        self._looked_ns = clock.boot_ns()
        self._said = ""

    def run(self, stop: threading.Event) -> None:
        """Watch until told to stop."""
        while not stop.is_set():
            self.step()
            stop.wait(self._watch_seconds)

    def until_delivering(self, stop: threading.Event, deadline_seconds: float) -> None:
        """Watch closely until a heartbeat that began after this call is delivered. Raises NotDelivering."""
        began_ns = self._clock.boot_ns()
        while not stop.is_set():
            decided = self.step()
            waited = (self._clock.boot_ns() - began_ns) / 1e9
            age = self._seen.heartbeat_age_seconds
            if decided.healthy and age is not None and age < waited:
                return
            if waited > deadline_seconds:
                raise NotDelivering(f"no heartbeat was delivered within {deadline_seconds:.0f} s: {decided.reason}")
            stop.wait(0.25)

    def step(self) -> Verdict:
        """Look once, decide, act."""
        now_ns = self._clock.boot_ns()
        self._memory = self._memory.passed((now_ns - self._looked_ns) / 1e9)
        self._looked_ns = now_ns
        self._seen: Observation = self._observer.look()
        decided = verdict(self._seen, self._memory, self._stale_seconds)
        self._tell(decided)
        try:
            self._act(decided.action)
        except (ConnectUnavailable, ConnectRefused, psycopg.Error) as error:
            log.warning(
                "%s did not succeed and is tried again: %s",
                decided.action.value,
                error,
                extra={"action": decided.action.value},
            )
        self._memory = self._memory.did(decided)
        return decided

    def _act(self, action: Action) -> None:
        registration = self._registration
        match action:
            case Action.REGISTER:
                registration.register()
            case Action.RESUME:
                registration.api.resume(registration.name)
            case Action.RESTART_FAILED:
                # The configuration as well: what somebody changed may be why it failed.
                registration.register()
                registration.api.restart(registration.name, only_failed=True)
            case Action.RESTART_ALL:
                registration.api.restart(registration.name, only_failed=False)
            case Action.BEGIN_ANEW:
                registration.begin_anew(self._observer)

    def _tell(self, decided: Verdict) -> None:
        """Each action, and each change of what is wrong; not the same line every two seconds."""
        if decided.healthy:
            if self._said:
                log.info("Capture delivers again", extra={"action": "healthy"})
            self._said = ""
            return
        what = decided.reason.split(":")[0]
        if decided.action is Action.NOTHING and what == self._said:
            return
        self._said = what
        level = logging.WARNING if decided.alarm else logging.INFO
        log.log(level, "Capture: %s", decided.reason, extra={"action": decided.action.value})
