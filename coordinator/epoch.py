"""Fencing Postgres: from here on every older token is refused there. Who is not fit to lead does not get so far."""

from __future__ import annotations

from collections.abc import Callable
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


def fence_postgres(
    connection: psycopg.Connection[Any], *, revision: int, node: str, identity: Callable[[bool], str | None]
) -> int:
    """Raise the epoch; returns the term's token. Raises NotFit.

    ``identity(make)`` says which etcd the revision is of; with ``make`` it is given a name if it has none.
    """
    try:
        schema_version_check(connection)
    except SchemaError as error:
        raise NotFit(str(error)) from None
    newest = connection.execute(queries["read_epoch"]).fetchone()
    assert newest is not None
    token, base, _, tzdata, _, known_etcd = newest
    if is_older(TZDATA_VERSION, tzdata):
        raise NotFit(
            f"this node's time zone data {TZDATA_VERSION} is older than {tzdata}, with which jobs were planned: "
            "bring its tzdata package up to date"
        )
    etcd = identity(known_etcd is None)
    if known_etcd not in (None, etcd):
        raise NotFit(f"this etcd is not the one that tokens came from so far: was it wiped? {_ADOPT}")
    raised = connection.execute(
        queries["raise_epoch"], {"revision": revision, "node": node, "tzdata": TZDATA_VERSION, "etcd_identity": etcd}
    ).fetchone()
    if raised is None:
        raise NotFit(f"the token {base + revision} is not above {token}: was etcd restored from a backup? {_ADOPT}")
    return int(raised[0])


_ADOPT = "When the old etcd is gone for good: cronstream adopt-etcd"
