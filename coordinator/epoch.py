"""Fencing Postgres: from here on every older token is refused there. Who is not fit to lead does not get so far."""

from __future__ import annotations

from typing import Any

import psycopg

from coordinator.trust import TermOver
from coordinator.zone_data import is_older
from cronstream.schedule import TZDATA_VERSION
from sql.migrate import SchemaError, schema_version_check
from sql.queries import load

queries = load("coordinator")


class NotFit(TermOver):
    """This node must not lead as it is; the text says what to do. Another may."""


def fence_postgres(connection: psycopg.Connection[Any], *, revision: int, node: str) -> int:
    """Raise the epoch; returns the term's token. Raises NotFit."""
    try:
        schema_version_check(connection)
    except SchemaError as error:
        raise NotFit(str(error)) from None
    newest = connection.execute(queries["read_epoch"]).fetchone()
    assert newest is not None
    token, _, _, tzdata, _ = newest
    if is_older(TZDATA_VERSION, tzdata):
        raise NotFit(
            f"this node's time zone data {TZDATA_VERSION} is older than {tzdata}, with which jobs were planned: "
            "bring its tzdata package up to date"
        )
    raised = connection.execute(
        queries["raise_epoch"], {"revision": revision, "node": node, "tzdata": TZDATA_VERSION}
    ).fetchone()
    if raised is None:
        raise NotFit(
            f"etcd's revision {revision} is not above the epoch {token}: was etcd wiped or restored? "
            "When the old etcd is gone for good: cronstream adopt-etcd"
        )
    return int(raised[0])
