"""Fencing Kafka: the broker aborts what an older leader has left open, and refuses that leader from then on.

The client's ``init_transactions`` does the same. But a leader is mostly killed within a
transaction, the broker needs some milliseconds to abort that, and the client asks again
after half a second. So the broker is asked here until it is done, and the client finds
nothing left to wait for.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import ConcurrentTransactions, KafkaError, NoError, for_code
from aiokafka.protocol.transaction import InitProducerIdRequest

from cronstream.clock import Clock

_AGAIN_SECONDS = 0.01


def fence_kafka(address: str, transactional_id: str, clock: Clock, *, timeout_ms: int, seconds: float) -> None:
    """Raise the epoch of a transactional id. ``timeout_ms``: of the transactions that follow.

    Raises KafkaError of aiokafka when the broker cannot be asked or says no, TimeoutError after ``seconds``.
    """
    request = InitProducerIdRequest(transactional_id, timeout_ms)
    asyncio.run(_fence(address, transactional_id, request, clock, seconds))


async def _fence(
    address: str, transactional_id: str, request: InitProducerIdRequest, clock: Clock, seconds: float
) -> None:
    client = AIOKafkaClient(bootstrap_servers=address, client_id="fence", retry_backoff_ms=20)
    try:
        async with asyncio.timeout(seconds):
            await client.bootstrap()
            while not await _asked(client, request, transactional_id):
                await clock.asleep(_AGAIN_SECONDS)
    finally:
        with contextlib.suppress(KafkaError):
            await client.close()


async def _asked(client: Any, request: InitProducerIdRequest, transactional_id: str) -> bool:
    """True once it is done; False: to be asked again. Raises KafkaError that no asking mends."""
    try:
        node = await client.coordinator_lookup(CoordinationType.TRANSACTION, transactional_id)
        if not await client.ready(node):
            return False
        answer = await client.send(node, request)
        error = for_code(answer.error_code)
        if error is not NoError:
            raise error
    except KafkaError as error:
        # The first is the one that is expected: an older leader's transaction is being aborted.
        if not (isinstance(error, ConcurrentTransactions) or error.retriable):
            raise
        return False
    return True
