"""Who owns which partition, so that any process can forward a question.

Each owner puts its address under a key a partition, with a lease, and reads all keys
twice a second:

    /<installation>/streams/owners/<partition>  →  host:port

The key says where to ask and proves nothing: who is asked answers only while the
consumer group trusts it with the partition, checked after its table was read
(``StreamsApp.lane_of``). A key that is late costs a 503, never a wrong answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import aetcd

from cronstream.clock import Clock
from cronstream.settings import StreamsSettings

log = logging.getLogger(__name__)

TTL_SECONDS = 5
RENEW_EVERY = 3
"""Every this many looks the lease is renewed."""
LOOK_SECONDS = 0.5
ANSWER_SECONDS = 1.0
CHANNEL = {
    # Otherwise grpc pauses for up to two minutes, for all channels to one address.
    "grpc.use_local_subchannel_pool": 1,
    "grpc.max_reconnect_backoff_ms": 1000,
}


class Owners:
    """Publishes this process' partitions and knows the others' addresses."""

    def __init__(self, settings: StreamsSettings, clock: Clock, owned: Callable[[], frozenset[int]]) -> None:
        self._endpoints = settings.etcd.split(",")
        self._prefix = f"/{settings.installation}/streams/owners/"
        self._clock = clock
        self._owned = owned
        self._addresses: dict[int, str] = {}

    def address_of(self, partition: int) -> str | None:
        """Where to ask; None if nobody is known to own the partition."""
        return self._addresses.get(partition)

    async def run(self, address: str) -> None:
        """Keep the lease and the keys, whatever etcd does; ends only when cancelled."""
        turn = 0
        while True:
            host, _, port = self._endpoints[turn % len(self._endpoints)].strip().rpartition(":")
            client = aetcd.Client(host, int(port), timeout=1, options=dict(CHANNEL))
            try:
                await self._hold(client, address.encode())
            except (aetcd.ClientError, TimeoutError) as error:
                log.warning(
                    "etcd did not answer: %r", error, extra={"action": "publish_owner", "endpoint": f"{host}:{port}"}
                )
            finally:
                await client.close()
            turn += 1
            await self._clock.asleep(LOOK_SECONDS)

    async def _hold(self, client: Any, address: bytes) -> None:
        lease = await client.lease(TTL_SECONDS)
        published: frozenset[int] = frozenset()
        looks = 0
        try:
            while True:
                owned = self._owned()
                for partition in owned - published:
                    await client.put(self._key(partition), address, lease=lease)
                for partition in published - owned:
                    await self._withdraw(client, partition, address)
                published = owned
                found = await client.get_prefix(self._prefix.encode())
                self._addresses = {int(item.key.rsplit(b"/", 1)[1]): item.value.decode() for item in found}
                looks += 1
                if looks % RENEW_EVERY == 0:
                    renewed = await client.refresh_lease(lease.id)
                    # None: the member ended the stream without an answer.
                    if renewed is None or renewed.TTL <= 0:
                        log.warning("The lease has ended", extra={"action": "publish_owner"})
                        return
                await self._clock.asleep(LOOK_SECONDS)
        except asyncio.CancelledError:
            for partition in published:
                await self._withdraw(client, partition, address)
            raise

    async def _withdraw(self, client: Any, partition: int, address: bytes) -> None:
        """Delete the key unless a successor has put its own there."""
        key = self._key(partition)
        ours = client.transactions.value(key) == address
        await client.transaction(compare=[ours], success=[client.transactions.delete(key)], failure=[])

    def _key(self, partition: int) -> bytes:
        return f"{self._prefix}{partition}".encode()
