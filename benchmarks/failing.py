"""A target on which every run fails in a way that is tried again: it answers 503."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_ANSWER = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"
_END = b"\r\n\r\n"


class _Refuses(asyncio.Protocol):
    """Answers each request without a body; connections are kept."""

    def __init__(self) -> None:
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *requests, self._rest = (self._rest + data).split(_END)
        self._transport.write(_ANSWER * len(requests))


@contextmanager
def receiver() -> Iterator[str]:
    """Its address, for GET; it runs in a thread of its own."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(loop.create_server(_Refuses, "127.0.0.1", 0, backlog=1024))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.close()
