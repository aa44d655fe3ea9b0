"""Attempts to hand to handlers, and batches of them."""

from __future__ import annotations

import json
from typing import Any

from cronstream.bodies import Policy, Work, pack
from cronstream.records import Batch, Item, Kind, Source
from cronstream.settings import WorkerSettings
from workers.attempt import Attempt

SCHEDULED_US = 1_772_953_200_000_000


def settings(**changes: Any) -> WorkerSettings:
    """A worker's, of servers that nobody asks."""
    servers = {"postgres": "dbname=none", "kafka": "127.0.0.1:1", "etcd": "127.0.0.1:1", "node": "w1"}
    return WorkerSettings.model_validate({**servers, **changes})


def an_attempt(handler: str = "log", payload: Any = None, *, attempt: int = 1) -> Attempt:
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    work = Work("acme", "nightly", handler, body, Policy())
    return Attempt(work, 7, SCHEDULED_US, 0, attempt, 41, SCHEDULED_US)


def a_run(job_id: int, *, tenant: str = "acme", handler: str = "log", timeout_seconds: float = 60.0) -> Item:
    work = Work(tenant, f"job-{job_id}", handler, b"{}", Policy(timeout_seconds=timeout_seconds))
    return Item(Kind.RUN, job_id, SCHEDULED_US, 0, 1, pack(work))


def a_batch(*items: Item, offset: int = 0) -> Batch:
    return Batch.of(items, token=41, published_at=5, source=Source("triggers", 0, offset))
