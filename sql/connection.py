"""Connections to Postgres, set up alike for every process."""

from __future__ import annotations

from typing import Any

import psycopg

from cronstream.settings import Installation

# A server that is gone without a word is noticed within about five seconds,
# while waiting for an answer (keepalives) and while sending (user timeout).
_NOTICE_DEAD_SERVER: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 3,
    "tcp_user_timeout": 5000,
}


def parameters(settings: Installation, role: str = "") -> dict[str, Any]:
    """What ``connect`` passes beside the connection string: for async connections and pools."""
    name = f"{settings.installation} {role or settings.node}"
    return {**_NOTICE_DEAD_SERVER, "application_name": name[:63], "options": "-c timezone=UTC"}


def connect(settings: Installation, role: str = "", **kwargs: Any) -> psycopg.Connection[Any]:
    """A connection in UTC. ``role`` names it in pg_stat_activity; the rest goes to psycopg."""
    return psycopg.connect(settings.postgres_dsn(), **{**parameters(settings, role), **kwargs})
