"""Getting the connector into Connect, and getting it to begin anew. Both may be repeated."""

from __future__ import annotations

import logging

import psycopg

from connectors.config import connector_config, connector_name, slot_name
from connectors.connect_api import ConnectApi, ConnectUnavailable
from connectors.observation import Observer
from cronstream.clock import Clock
from cronstream.settings import CaptureSettings, SettingsError

log = logging.getLogger(__name__)

_STOPPING_SECONDS = 30.0


class Registration:
    """The connector of one installation, as Connect knows it."""

    def __init__(self, settings: CaptureSettings, clock: Clock) -> None:
        if settings.connect is None:
            raise SettingsError("CRONSTREAM_CONNECT is not set: Kafka Connect's address, http://host:port")
        self.name = connector_name(settings)
        self.slot = slot_name(settings)
        self.api = ConnectApi(settings.connect)
        self._config = connector_config(settings)
        self._clock = clock

    def register(self) -> None:
        """PUT the configuration. Raises ConnectUnavailable or ConnectRefused."""
        self.api.put_config(self.name, self._config)
        log.info("The connector %s is registered", self.name, extra={"action": "register", "slot": self.slot})

    def begin_anew(self, observer: Observer) -> None:
        """Stop, drop the slot, forget the offsets, register, run. Each step may find its work done.

        Raises ConnectUnavailable, ConnectRefused or psycopg.Error; then it is to be called again.
        """
        log.warning(
            "Capture begins anew with a new slot: edits committed meanwhile stand in job_changes and are planned "
            "by the coordinator's audit, so nothing is lost",
            extra={"action": "begin-anew", "slot": self.slot},
        )
        if self.api.status(self.name) is not None:
            self.api.stop(self.name)
            self._until_stopped()
            self._until_slot_dropped(observer)
            self.api.forget_offsets(self.name)
        self.register()
        self.api.resume(self.name)

    def remove(self, observer: Observer) -> None:
        """Take the installation's connector and slot away. Same errors as ``begin_anew``."""
        if self.api.status(self.name) is not None:
            self.api.stop(self.name)
            self._until_stopped()
            self.api.forget_offsets(self.name)
            self.api.delete(self.name)
        self._until_slot_dropped(observer)

    def _until_stopped(self) -> None:
        deadline = self._clock.boot_ns() + int(_STOPPING_SECONDS * 1e9)
        while self._clock.boot_ns() < deadline:
            status = self.api.status(self.name)
            if status is None or (status.connector == "STOPPED" and status.task is None):
                return
            self._clock.sleep(0.2)
        raise ConnectUnavailable(f"{self.name} does not stop")

    def _until_slot_dropped(self, observer: Observer) -> None:
        deadline = self._clock.boot_ns() + int(_STOPPING_SECONDS * 1e9)
        while not observer.drop_slot():
            if self._clock.boot_ns() >= deadline:
                raise psycopg.errors.ObjectInUse(f"slot {self.slot} is still being read")
            self._clock.sleep(0.5)
