"""The target of the demo's http jobs: ``python -m demo.receiver PORT``.

It answers 200 to every POST and remembers when each began, by CLOCK_BOOTTIME,
which the demo translates into the database's clock. ``GET /calls?since=N``
answers with the calls from number N on.
"""

from __future__ import annotations

import http.client
import json
import sys
from dataclasses import dataclass

from aiohttp import web

from cronstream.clock import SystemClock


@dataclass(frozen=True, slots=True)
class Call:
    """One request that the receiver got."""

    boot_ns: int
    key: str
    """Idempotency-Key; empty when the header was missing."""
    token: int
    attempt: int


def serve(port: int) -> None:
    """Until SIGTERM."""
    clock = SystemClock()
    calls: list[tuple[int, str, int, int]] = []

    async def hook(request: web.Request) -> web.Response:
        boot_ns = clock.boot_ns()
        headers = request.headers
        calls.append(
            (
                boot_ns,
                headers.get("Idempotency-Key", ""),
                int(headers.get("X-Fencing-Token", "0")),
                int(headers.get("X-Attempt", "0")),
            )
        )
        await request.read()
        return web.Response(text="ok")

    async def since(request: web.Request) -> web.Response:
        return web.Response(text=json.dumps(calls[int(request.query.get("since", "0")) :]))

    async def health(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_post("/hook", hook)
    app.router.add_get("/calls", since)
    web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None, shutdown_timeout=1)


class Receiver:
    """The demo's side: what was received so far. Used by one thread."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.url = f"http://127.0.0.1:{port}/hook"
        self.calls: list[Call] = []

    def fetch(self) -> list[Call]:
        """The calls that came since the last time. Raises OSError when the receiver is gone."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", f"/calls?since={len(self.calls)}")
            new = [Call(*fields) for fields in json.loads(connection.getresponse().read())]
        finally:
            connection.close()
        self.calls += new
        return new


if __name__ == "__main__":
    serve(int(sys.argv[1]))
