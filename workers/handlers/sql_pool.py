"""Connections of one name: so many at once, kept while they are sound, and given on as new."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import psycopg
from psycopg.pq import TransactionStatus

from workers.fairness import TENANT_SHARE
from workers.handlers.sql_connections import NamedConnection

CONNECT_SECONDS = 10
KEPT_IDLE = 5
"""The rest is closed when it is given back: a herd does not leave its connections behind."""


class Unreadable(psycopg.OperationalError):
    """The password's file cannot be read."""


class _Tenant:
    """What one tenant may hold, and how many of its runs hold or want some."""

    def __init__(self, connections: int) -> None:
        self.free = asyncio.Semaphore(max(1, int(connections * TENANT_SHARE)))
        self.users = 0


class Pool:
    """Lives in one event loop. No tenant holds more than its share of the connections."""

    def __init__(self, entry: NamedConnection, application: str) -> None:
        self._entry = entry
        self._application = application
        self._free = asyncio.Semaphore(entry.connections)
        self._tenants: dict[str, _Tenant] = {}
        self._idle: list[psycopg.AsyncConnection] = []

    @contextlib.asynccontextmanager
    async def connection(self, tenant: str) -> AsyncIterator[psycopg.AsyncConnection]:
        """A connection in autocommit, nobody else's meanwhile. Raises psycopg.Error.

        It is closed after anything but a clean end: what it was doing, nobody knows.
        """
        async with self._share_of(tenant), self._free:
            connection = await self._sound()
            try:
                yield connection
            except BaseException:
                await connection.close()
                raise
            if connection.info.transaction_status == TransactionStatus.IDLE and len(self._idle) < KEPT_IDLE:
                self._idle.append(connection)
            else:
                await connection.close()

    @contextlib.asynccontextmanager
    async def _share_of(self, tenant: str) -> AsyncIterator[None]:
        share = self._tenants.setdefault(tenant, _Tenant(self._entry.connections))
        share.users += 1
        try:
            async with share.free:
                yield
        finally:
            share.users -= 1
            if not share.users:
                del self._tenants[tenant]

    async def close(self) -> None:
        """Close what is idle."""
        while self._idle:
            await self._idle.pop().close()

    async def _sound(self) -> psycopg.AsyncConnection:
        while self._idle:
            connection = self._idle.pop()
            try:
                # Settings, temporary tables, locks: nothing of one run is the next one's.
                await connection.execute("DISCARD ALL")
                return connection
            except psycopg.Error:
                await connection.close()
        return await self._connect()

    async def _connect(self) -> psycopg.AsyncConnection:
        try:
            conninfo = self._entry.conninfo()
        except OSError as error:
            raise Unreadable(f"password_file: {error.strerror}") from None
        return await psycopg.AsyncConnection.connect(
            conninfo,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            application_name=self._application,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
        )
