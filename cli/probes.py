"""One look at each part of an installation. A probe answers or raises."""

from __future__ import annotations

import asyncio
import http.client
import json
from functools import partial
from typing import Any

import psycopg
from psycopg.rows import dict_row

from cli.environment import postgres
from cli.errors import Failure, Unasked, explain
from cli.groups import look_at_group, stand_at, what_waits
from cli.topics import admin, partition_counts
from cli.webhook import look_at_webhook
from connectors.config import connector_name
from connectors.connect_api import ConnectApi
from coordinator.election import read_leader
from coordinator.etcd import Etcd
from cronstream.settings import AlertSettings, CaptureSettings, Installation
from cronstream.topics import RETRY_TIERS
from sql.blockers import Blocked
from sql.migrate import schema_version_check
from sql.queries import load

PROBE_SECONDS = 2.0


def probe_postgres() -> dict[str, Any]:
    """Schema, definitions, open edits, the oldest overdue schedule, how late runs started.

    Raises Unasked where the role may not look, or a table is locked.
    """
    queries = load("cli")
    try:
        with postgres() as connection:
            schema_version_check(connection)
            with connection.cursor(row_factory=dict_row) as cursor:
                counts = cursor.execute(queries["count_definitions"]).fetchone() or {}
                edits = cursor.execute(queries["open_edits"]).fetchone() or {}
                started = cursor.execute(queries["started_lately"]).fetchone() or {}
                overdue = cursor.execute(queries["oldest_overdue"]).fetchone()
    except (psycopg.errors.InsufficientPrivilege, Blocked) as error:
        failure = explain(error)
        raise Unasked(failure.message if failure else str(error)) from error
    return {**counts, **edits, "oldest_overdue": overdue, "started": started}


def probe_kafka(settings: Installation) -> dict[str, Any]:
    """Whether the topics are there. Raises Failure when some are not."""
    counts = partition_counts(admin(settings), PROBE_SECONDS)
    absent = [spec.name for spec in settings.topics.specs(settings.partitions) if spec.name not in counts]
    if absent:
        raise Failure(f"topics are missing: {', '.join(absent)} (run `cronstream setup`)")
    return {"partitions": counts[settings.topics.triggers]}


def probe_leader(settings: Installation) -> dict[str, Any]:
    """Who leads, and what it says of its term. Raises Failure when nobody leads or it does not answer."""
    leader = read_leader(settings.etcd, f"/{settings.installation}", timeout_seconds=PROBE_SECONDS)
    if leader is None:
        raise Failure("nobody leads: is a coordinator running?")
    known = {"node": leader.node, "address": leader.address, "since": leader.since, "token": leader.token}
    try:
        figures = get_json(leader.address, "/stats")
        # The term's token counts on from before an adopted etcd; the key's revision does not.
        return {**known, "token": figures.get("token", leader.token), "figures": figures}
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Failure(
            f"{leader.node} at {leader.address} leads since {leader.since} but does not answer: {why(error)}"
        ) from error


def probe_capture(settings: CaptureSettings) -> dict[str, Any]:
    """The connector's state. Raises Failure unless it runs."""
    if settings.connect is None:
        raise Failure("CRONSTREAM_CONNECT is not set")
    name = connector_name(settings)
    status = ConnectApi(settings.connect, PROBE_SECONDS).status(name)
    if status is None:
        raise Failure(f"there is no connector {name}: run `cronstream setup`")
    if not status.running:
        raise Failure(f"{name} is {status.connector}, its task {status.task}: {status.reason or 'no reason given'}")
    return {"connector": name, "state": status.connector, "task": status.task}


def probe_streams(settings: Installation) -> dict[str, Any]:
    """The figures of every process that owns a partition, added up, and what they have not done of each topic.

    Raises Failure when one is missing.
    """
    backlog = _streams_backlog(settings)
    try:
        return {**_owners_figures(settings), "backlog": backlog}
    except Failure as failure:
        waits = [what_waits(topic, known) for topic, known in (backlog or {}).items() if known["backlog"]]
        raise Failure("; ".join([failure.message, *waits])) from failure


def _streams_backlog(settings: Installation) -> dict[str, dict[str, Any]] | None:
    """By topic; None when Kafka does not say: the figures are there without it."""
    topics = settings.topics
    names = [topics.triggers, topics.retry_due, topics.outcomes]
    try:
        stand = stand_at(settings, f"{settings.installation}-streams", names, PROBE_SECONDS)
    except Unasked:
        return None
    return {name: stand.backlog(name) for name in names}


def _owners_figures(settings: Installation) -> dict[str, Any]:
    """Addresses and figures. Raises Failure when a partition has no owner, or its owner does not answer."""
    owners = asyncio.run(_owners(settings))
    unowned = [str(partition) for partition, address in owners.items() if address is None]
    addresses = sorted({address for address in owners.values() if address is not None})
    if not addresses:
        raise Failure("no streams process owns a partition: is one running?")
    totals: dict[str, Any] = {}
    for address in addresses:
        try:
            figures = get_json(address, "/stats", token=settings.status_token())
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Failure(f"the process at {address} owns partitions but does not answer: {why(error)}") from error
        for name, value in figures.items():
            if isinstance(value, int | float):
                totals[name] = totals.get(name, 0) + value
    if unowned:
        raise Failure(f"partitions without an owner: {', '.join(unowned)} (moving, or no process is left for them)")
    return {"addresses": addresses, "figures": totals}


def probe_workers(settings: Installation) -> dict[str, Any]:
    """Who is in the workers' group, and how many attempts wait. Raises Failure when nobody is."""
    group = f"{settings.installation}-workers"
    return look_at_group(settings, group, [settings.topics.attempts], "worker", PROBE_SECONDS)


def probe_mover(settings: Installation) -> dict[str, Any]:
    """Who is in the movers' group, and how many records of retries wait. Raises Failure when nobody is."""
    topics = [settings.topics.retry(tier) for tier in RETRY_TIERS]
    return look_at_group(settings, f"{settings.installation}-mover", topics, "mover", PROBE_SECONDS)


def probe_history(settings: Installation) -> dict[str, Any]:
    """Who is in the history sinks' group, and how many outcomes wait. Raises Failure when nobody is."""
    group = f"{settings.installation}-history"
    return look_at_group(settings, group, [settings.topics.outcomes], "history sink", PROBE_SECONDS)


def probe_commands(settings: Installation) -> dict[str, Any]:
    """Who takes commands, and how many wait. Raises Failure when nobody does."""
    group = f"{settings.installation}-commands"
    return look_at_group(settings, group, [settings.topics.commands], "commands process", PROBE_SECONDS)


def probe_alerts(settings: AlertSettings) -> dict[str, Any]:
    """Who watches dead letters, how many wait to be told of, and how far the webhook is, if there is one.

    Raises Failure when nobody watches, or the webhook does not get on.
    """
    group = f"{settings.installation}-alerts"
    found = look_at_group(settings, group, [settings.topics.dead_letter], "alerts process", PROBE_SECONDS)
    return {**found, "webhook": look_at_webhook(settings, PROBE_SECONDS)}


def get_json(
    address: str, path: str, timeout_seconds: float = PROBE_SECONDS, token: str | None = None
) -> dict[str, Any]:
    """A page of one of the processes. Raises OSError, HTTPException or ValueError."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connection = http.client.HTTPConnection(address, timeout=timeout_seconds)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        if response.status != http.client.OK:
            raise ValueError(f"{path} answers {response.status}")
        page: dict[str, Any] = json.loads(body)
        return page
    finally:
        connection.close()


def why(error: Exception) -> str:
    """What an error of ``get_json`` says to people."""
    if isinstance(error, TimeoutError):
        return f"nothing within {PROBE_SECONDS:g} s"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__


async def _owners(settings: Installation) -> dict[int, str | None]:
    """By partition, the address that its owner has published."""
    found: dict[int, str | None] = {}
    async with Etcd(settings.etcd, PROBE_SECONDS) as etcd:
        for partition in range(settings.partitions):
            name = f"/{settings.installation}/streams/owners/{partition}"
            key = await etcd.any_member(partial(etcd.read, name))
            found[partition] = None if key is None else key.value.decode()
    return found
