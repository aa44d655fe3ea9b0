"""Links that can be cut: one TCP relay for each connection of a process to a server.

A process is given the relay's address in place of the server's. What can happen to a link:

    open     bytes pass
    silent   nothing passes either way and nobody is told; what was sent waits, as packets would
    broken   connections are reset, new ones refused at once
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any, Literal, TypeVar

T = TypeVar("T")
State = Literal["open", "silent", "broken"]


class Link:
    """One relay. Made by ``Links``; its methods may be called from any thread."""

    def __init__(self, name: str, port: int, upstream: int, links: Links) -> None:
        self.name = name
        self.port = port
        self._upstream = upstream
        self._links = links
        self._state: State = "open"
        self._passing = asyncio.Event()
        self._passing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.held = 0
        """How often bytes or a connection were stopped by a cut: a cut that held nothing did not hit."""

    @property
    def connections(self) -> int:
        """How many are open through it."""
        return len(self._writers) // 2

    async def serve(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", self.port)

    def end(self) -> None:
        """In the loop's thread: stop listening, drop what is open."""
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    def cut(self, state: State) -> None:
        """``silent`` or ``broken``."""
        self.held = 0
        self._links.call(self._set(state))

    def heal(self) -> None:
        self._links.call(self._set("open"))

    async def _set(self, state: State) -> None:
        self._state = state
        if state == "silent":
            self._passing.clear()
        else:
            self._passing.set()
        if state == "broken":
            self.held += len(self._writers)
            for writer in list(self._writers):
                writer.transport.abort()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._state == "broken":
            self.held += 1
            writer.transport.abort()
            return
        if self._state == "silent":
            self.held += 1
            await self._passing.wait()
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, up_writer}
        self._writers |= both
        try:
            await asyncio.gather(self._pump(reader, up_writer), self._pump(up_reader, writer))
        finally:
            self._writers -= both
            for one in both:
                one.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                if not self._passing.is_set():
                    self.held += 1
                    await self._passing.wait()
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError, RuntimeError):
            writer.write_eof()


class Links:
    """All links of a run, on an event loop of their own."""

    def __init__(self) -> None:
        self._made: list[Link] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    def make(self, name: str, port: int, upstream: int) -> Link:
        """Relay 127.0.0.1:port to 127.0.0.1:upstream."""

        async def made() -> Link:
            link = Link(name, port, upstream, self)
            await link.serve()
            self._made.append(link)
            return link

        return self.call(made())

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def close(self) -> None:
        """Every connection and listener ends."""
        self.call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _end(self) -> None:
        for link in self._made:
            link.end()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
