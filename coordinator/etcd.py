"""etcd, as far as an election needs it: the only module that knows the client.

The client is aetcd 1.0.0. Three of its habits are dealt with here:

- Its ``watch`` does not notice a stream that ends cleanly or that etcd cancels for another
  reason than compaction, and would wait for ever: the stream is read here directly.
- A closed channel cancels the calls of whoever else uses it, which asyncio cannot tell from
  a cancelled task: one coroutine has one channel.
- grpc reconnects after pauses that grow to two minutes, in state that all channels to one
  address share: a failed channel is dropped, and channels share nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import aetcd
from aetcd import rpc

log = logging.getLogger(__name__)

T = TypeVar("T")

CHANNEL_OPTIONS: Final = {
    "grpc.use_local_subchannel_pool": 1,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.min_reconnect_backoff_ms": 500,
    "grpc.max_reconnect_backoff_ms": 1000,
}


class EtcdUnavailable(Exception):
    """etcd did not answer, or not in time, or with an error; the outcome may be unknown."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A key's value, its create revision, and the store's revision when it was read."""

    value: bytes
    token: int
    revision: int


class Etcd:
    """The few calls of etcd an election needs; every failure is EtcdUnavailable.

    One coroutine at a time: after a failure the channel is dropped, and what else used it
    would be cancelled. The next call opens one to the next endpoint: whoever asks again and again
    goes through all of them, whoever asks once does so by ``any_member``.
    """

    def __init__(self, endpoints: str, timeout_seconds: float) -> None:
        self._endpoints = [endpoint.strip() for endpoint in endpoints.split(",")]
        self._timeout = timeout_seconds
        self._turn = 0
        self._client: aetcd.Client | None = None

    async def any_member(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What ``ask``, a call of this object that does no harm when it is made twice, brings at the first
        endpoint that answers. Raises EtcdUnavailable when none does."""
        for _ in self._endpoints[1:]:
            with contextlib.suppress(EtcdUnavailable):
                return await ask()
        return await ask()

    async def read(self, key: str) -> KeyValue | None:
        """A linearizable read."""
        async with self._call() as client:
            found = await client.get(key.encode())
        return found and KeyValue(found.value, found.create_revision, found.header.revision)

    async def grant(self, ttl_seconds: int) -> int:
        """A new lease's id."""
        async with self._call() as client:
            return int((await client.lease(ttl_seconds)).id)

    async def put_if_absent(self, key: str, value: str, lease: int) -> int | None:
        """The key's create revision if it was absent and is ours now, else None."""
        name = key.encode()
        async with self._call() as client:
            won, answers = await client.transaction(
                compare=[client.transactions.create(name) == 0],
                success=[
                    client.transactions.put(name, value.encode(), lease=lease),
                    client.transactions.get(name),
                ],
                failure=[],
            )
        return int(answers[1][0][1].create_revision) if won else None

    async def keep_first(self, key: str, value: str) -> str:
        """Put a lasting key if it is absent; returns what stands there."""
        name = key.encode()
        async with self._call() as client:
            _, answers = await client.transaction(
                compare=[client.transactions.create(name) == 0],
                success=[client.transactions.put(name, value.encode()), client.transactions.get(name)],
                failure=[client.transactions.get(name)],
            )
        kept: bytes = answers[-1][0][0]
        return kept.decode()

    async def keep_alive(self, lease: int) -> int:
        """Seconds the lease has now; 0 when it is no more, which etcd does not call an error."""
        async with self._call() as client:
            answer = await client.refresh_lease(lease)
        if answer is None:
            raise EtcdUnavailable("the keepalive stream ended without an answer")
        return int(answer.TTL)

    async def revoke_quietly(self, lease: int) -> None:
        """Give a lease back with its keys, to whichever member takes it; if none does it runs out by itself."""

        async def revoke() -> None:
            async with self._call() as client:
                await client.revoke_lease(lease)

        try:
            await self.any_member(revoke)
        except EtcdUnavailable as error:
            log.debug("the lease runs out by itself: %s", error, extra={"action": "revoke"})

    async def watch_until_deleted(self, key: str, revision: int) -> None:
        """Return when the key was deleted at that revision or later."""
        create = rpc.WatchCreateRequest(
            key=key.encode(),
            start_revision=revision,
            filters=[rpc.WatchCreateRequest.FilterType.NOPUT],
        )
        ended = asyncio.Event()

        async def requests() -> AsyncIterator[Any]:
            yield rpc.WatchRequest(create_request=create)
            await ended.wait()  # etcd ends a watch whose requests have ended

        async with self._call() as client:
            stream = rpc.WatchStub(client.channel).Watch(requests(), metadata=client.metadata)
            try:
                async for answer in stream:
                    if answer.canceled:
                        why = answer.cancel_reason or f"compacted at {answer.compact_revision}"
                        raise EtcdUnavailable(f"etcd cancelled the watch: {why}")
                    if answer.events:
                        return
                raise EtcdUnavailable("the watch ended")
            finally:
                stream.cancel()
                ended.set()

    @contextlib.asynccontextmanager
    async def _call(self) -> AsyncIterator[aetcd.Client]:
        try:
            if self._client is None:
                host, _, port = self._endpoints[self._turn % len(self._endpoints)].rpartition(":")
                self._client = aetcd.Client(host, int(port), timeout=self._timeout, options=CHANNEL_OPTIONS)
                await self._client.connect()
            yield self._client
        except EtcdUnavailable:
            await self._drop()
            raise
        except (aetcd.ClientError, rpc.AioRpcError, rpc.BaseError, OSError) as error:
            await self._drop()
            says = error.details() if isinstance(error, rpc.AioRpcError) else error
            raise EtcdUnavailable(f"{type(error).__name__}: {says}") from error

    async def _drop(self) -> None:
        await self.close()
        self._turn += 1

    async def close(self) -> None:
        """Drop the channel; the next call opens one."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
