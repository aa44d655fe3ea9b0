"""Questions to the other streams processes. One that cannot be asked is a ``Moving``: the caller tries again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from streams.access import headers_of
from streams.lookup import Moving
from streams.owners import Owners

FORWARDED = "X-Cronstream-Forwarded"
"""Names who asks; a question is handed on once."""
FORWARD_SECONDS = 2.0


class Forwarding:
    """A client to the owners of partitions."""

    def __init__(self, node: str, token: str | None, owners: Owners) -> None:
        self._headers = {FORWARDED: node, **headers_of(token)}
        self._owners = owners
        self._client: aiohttp.ClientSession | None = None

    async def session(self, _: Any) -> AsyncIterator[None]:
        """Open while the pages are: aiohttp's ``cleanup_ctx``."""
        timeout = aiohttp.ClientTimeout(total=FORWARD_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout, headers=self._headers) as self._client:
            yield

    def owner_of(self, partition: int) -> str:
        """Its owner's address. Raises Moving when nobody is known."""
        address = self._owners.address_of(partition)
        if address is None:
            raise Moving(f"nobody is known to own partition {partition}")
        return address

    async def get(self, address: str, path: str) -> tuple[int, bytes]:
        """Status and body of the owner's answer. Raises Moving when it gives none, or is not sure itself."""
        assert self._client is not None
        try:
            async with self._client.get(f"http://{address}{path}", allow_redirects=False) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Moving(f"the owner at {address} does not answer") from error
        if answer.status == 503:
            raise Moving(f"the owner at {address} is not sure")
        return answer.status, body
