"""Figures of the running processes, asked once a second."""

from __future__ import annotations

import http.client
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from cli.probes import get_json
from coordinator.election import Leader, read_leader
from coordinator.etcd import EtcdUnavailable
from cronstream.clock import Clock

_RATE_SECONDS = 5.0
_ANSWER_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Figures:
    """One look. None: not known right now."""

    leader: str | None = None
    token: int | None = None
    answers: bool = False
    """Whether the one that holds the leader key answers."""
    triggers: int = 0
    """Published by all terms that were seen."""
    triggers_per_second: float | None = None
    lateness_p50_ms: float | None = None
    lateness_p99_ms: float | None = None
    capture_lag_ms: float | None = None
    """Of the newest edit that any leader heard of."""
    streams: dict[str, Any] = field(default_factory=dict)


class Watch:
    """Looks at the leader, wherever it is, and at one streams process."""

    def __init__(self, etcd: str, installation: str, streams_address: str, clock: Clock) -> None:
        self._etcd = etcd
        self._prefix = f"/{installation}"
        self._streams_address = streams_address
        self._clock = clock
        self._capture_lag_ms: float | None = None
        self._published: dict[int, int] = {}
        self._samples: deque[tuple[int, int]] = deque()

    def leader(self) -> Leader | None:
        """Who holds the leader key; None also when etcd does not say."""
        try:
            return read_leader(self._etcd, self._prefix, timeout_seconds=_ANSWER_SECONDS)
        except EtcdUnavailable:
            return None

    def look(self) -> Figures:
        """All figures of this moment."""
        leader = self.leader()
        page = self._page(leader.address) if leader is not None else {}
        if "published" in page:
            self._published[page["token"]] = page["published"]
        lag_ms = page.get("capture_lag_ms")
        self._capture_lag_ms = self._capture_lag_ms if lag_ms is None else lag_ms
        total, now = sum(self._published.values()), self._clock.boot_ns()
        self._samples.append((now, total))
        while now - self._samples[0][0] > _RATE_SECONDS * 1e9:
            self._samples.popleft()
        since, before = self._samples[0]
        return Figures(
            leader=leader.node if leader else None,
            token=page.get("token") or (leader.token if leader else None),
            answers="published" in page,
            triggers=total,
            triggers_per_second=(total - before) / ((now - since) / 1e9) if now > since else None,
            lateness_p50_ms=page.get("lateness_p50_ms"),
            lateness_p99_ms=page.get("lateness_p99_ms"),
            capture_lag_ms=self._capture_lag_ms,
            streams=self._page(self._streams_address),
        )

    @staticmethod
    def _page(address: str) -> dict[str, Any]:
        try:
            return get_json(address, "/stats", _ANSWER_SECONDS)
        except (OSError, http.client.HTTPException, ValueError):
            return {}
