"""The http handler, against a server on this machine."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from cronstream.records import Kind
from tests.unit.workers.attempts import an_attempt
from workers.attempt import Result
from workers.handlers.http import BODY_BYTES, HttpHandler

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Target:
    """Remembers what it was asked."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.connections: set[object] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, dict(request.headers), await request.read()))
        self.connections.add(request.transport)
        return await self._answer(request)


def ask(answer: Answer, payload: dict[str, object], times: int = 1) -> tuple[Target, list[Result]]:
    async def talk() -> tuple[Target, list[Result]]:
        target = Target(answer)
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", target.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        handler = HttpHandler()
        try:
            call = {"url": f"http://{host}:{port}/hook", **payload}
            return target, [await handler.run(an_attempt("http", call, attempt=2)) for _ in range(times)]
        finally:
            await handler.close()
            await runner.cleanup()

    return asyncio.run(talk())


async def fine(_: web.Request) -> web.Response:
    return web.Response(text="done")


def test_it_posts_the_body_and_says_which_run_it_is() -> None:
    target, [result] = ask(fine, {"body": {"n": 1}, "headers": {"X-Own": "yes", "X-Attempt": "forged"}})
    method, headers, body = target.requests[0]
    assert (method, json.loads(body)) == ("POST", {"n": 1})
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == "7-1772953200000000-0"
    assert headers["X-Fencing-Token"] == "41"
    assert headers["X-Scheduled-Time"] == "2026-03-08T07:00:00Z"
    assert headers["X-Attempt"] == "2"
    assert headers["X-Job-Id"] == "7"
    assert headers["X-Own"] == "yes"
    assert result == Result(Kind.SUCCEEDED, None, "done")


def test_without_a_body_the_target_gets_an_envelope() -> None:
    target, _ = ask(fine, {})
    assert json.loads(target.requests[0][2]) == {
        "job": "nightly",
        "tenant": "acme",
        "job_id": 7,
        "scheduled_time": "2026-03-08T07:00:00Z",
        "attempt": 2,
        "key": "7-1772953200000000-0",
    }


def test_a_null_body_is_a_body() -> None:
    target, _ = ask(fine, {"body": None})
    assert target.requests[0][2] == b"null"


def test_a_get_has_no_body() -> None:
    target, _ = ask(fine, {"method": "get"})
    assert target.requests[0][0] == "GET"
    assert target.requests[0][2] == b""


def test_connections_are_kept_alive() -> None:
    target, results = ask(fine, {}, times=5)
    assert [result.kind for result in results] == [Kind.SUCCEEDED] * 5
    assert len(target.connections) == 1


def test_any_other_status_is_a_failure_with_what_was_said() -> None:
    async def broken(_: web.Request) -> web.Response:
        return web.Response(status=503, text="x" * 10_000)

    _, [result] = ask(broken, {})
    assert result.kind is Kind.FAILED
    assert result.error == "HTTP 503 Service Unavailable"
    assert result.output == "x" * BODY_BYTES


def test_redirects_are_not_followed() -> None:
    async def elsewhere(_: web.Request) -> web.Response:
        raise web.HTTPFound("/other")

    target, [result] = ask(elsewhere, {})
    assert len(target.requests) == 1
    assert result.error == "HTTP 302 Found"


def test_no_server_is_a_failure() -> None:
    _, [result] = ask(fine, {"url": "http://127.0.0.1:1/"})
    assert result.kind is Kind.FAILED
    assert "ClientConnectorError" in (result.error or "")


def test_what_is_no_call_is_a_failure() -> None:
    _, [result] = ask(fine, {"url": 5})
    assert result.kind is Kind.FAILED
    assert "the payload is not an http call" in (result.error or "")


def test_headers_cannot_be_split() -> None:
    target, [result] = ask(fine, {"headers": {"X-Own": "a\r\nX-Evil: b"}})
    assert result.kind is Kind.FAILED
    assert not target.requests
