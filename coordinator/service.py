"""The coordinator process: campaign, hold office, campaign again."""

from __future__ import annotations

import logging
import threading
from typing import Any

from coordinator.election import ElectionSettings, Elector
from coordinator.epoch import NotFit
from coordinator.office import Office
from coordinator.pages import Pages
from coordinator.trust import Term, TermOver
from cronstream.clock import Clock
from cronstream.settings import CoordinatorSettings

log = logging.getLogger(__name__)

_SHORT_TERM_SECONDS = 5.0
_PAUSE_AFTER_SHORT_TERM = 1.0
# A node that is not fit leaves the office to others for a while.
_PAUSE_WHEN_NOT_FIT = 10.0


class Service:
    """Leads whenever it is elected, until it is stopped."""

    def __init__(self, settings: CoordinatorSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._stop = threading.Event()
        self._office: Office | None = None

    def stop(self) -> None:
        """Hand over and end; may be called from a signal handler."""
        self._stop.set()

    def run(self) -> None:
        """Until ``stop``."""
        settings = self._settings
        pages = Pages(settings.status_host, settings.status_port, self.figures)
        elector = Elector(
            settings.etcd,
            f"/{settings.installation}",
            settings.node,
            ElectionSettings(settings.lease_ttl_seconds, settings.trust_margin_seconds, pages.address),
            self._clock,
        )
        try:
            while (term := elector.campaign(self._stop)) is not None:
                self._stop.wait(self._lead(elector, term))
        finally:
            elector.close()
            pages.close()

    def _lead(self, elector: Elector, term: Term) -> float:
        """Hold office to the end of the term; returns how long to stay away from the next election."""
        began_ns = self._clock.boot_ns()
        fit = True
        office = self._office = Office(self._settings, term, self._clock, self._stop)
        reason = "asked to stop"
        try:
            office.hold()
        except TermOver as error:
            fit = not isinstance(error, NotFit)
            reason = str(error)
            log.warning("The term ended: %s", reason, extra={"action": "term_ended", "token": term.token})
        except Exception as error:
            reason = f"failed: {error!r}"
            log.exception("The term failed", extra={"action": "term_failed", "token": term.token})
        finally:
            self._office = None
            elector.resign(term, reason)
        if not fit:
            return _PAUSE_WHEN_NOT_FIT
        short = self._clock.boot_ns() - began_ns < _SHORT_TERM_SECONDS * 1e9
        return _PAUSE_AFTER_SHORT_TERM if short else 0.0

    def figures(self) -> dict[str, Any]:
        """For the pages: who this is, whether it leads, and how its term goes."""
        office = self._office
        return {
            "node": self._settings.node,
            "leads": office is not None,
            **(office.figures() if office is not None else {}),
        }
