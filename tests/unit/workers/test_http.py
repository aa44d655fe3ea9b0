"""The http handler, against a server on this machine."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Network

import pytest
from aiohttp import web

from cronstream.clock import SECOND, FakeClock
from cronstream.records import Kind
from tests.unit.workers.attempts import an_attempt
from workers.attempt import BadPayload, Result
from workers.handlers.addresses import Network
from workers.handlers.http import BODY_BYTES, HttpHandler

LOOPBACK = (IPv4Network("127.0.0.0/8"),)
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


def ask(
    answer: Answer, payload: dict[str, object], times: int = 1, allowed: tuple[Network, ...] = LOOPBACK
) -> tuple[Target, list[Result]]:
    async def talk() -> tuple[Target, list[Result]]:
        target = Target(answer)
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", target.handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        handler = HttpHandler(FakeClock(), allowed)
        try:
            call = {"url": f"http://{host}:{port}/hook", **payload}
            call["url"] = str(call["url"]).replace(":0/", f":{port}/")
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


def answering(status: int, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, headers={name.replace("_", "-"): text for name, text in headers.items()})

    return answer


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 504, 599])
def test_what_may_pass_is_tried_again(status: int) -> None:
    _, [result] = ask(answering(status), {})
    assert (result.kind, result.final) == (Kind.FAILED, False)


@pytest.mark.parametrize("status", [301, 304, 400, 401, 404, 409, 410, 422, 600, 999])
def test_what_will_not_pass_is_final_unless_the_payload_says_otherwise(status: int) -> None:
    _, [result] = ask(answering(status), {})
    assert (result.kind, result.final) == (Kind.FAILED, True)
    _, [result] = ask(answering(status), {"retry_on": [404, status]})
    assert (result.kind, result.final) == (Kind.FAILED, False)


def test_retry_after_is_an_instant() -> None:
    _, [result] = ask(answering(503, Retry_After="90"), {})
    assert result.retry_after_us == FakeClock().wall_us() + 90 * SECOND
    _, [result] = ask(answering(404, Retry_After="90"), {})
    assert result.retry_after_us is None


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
    assert (result.kind, result.final) == (Kind.FAILED, False)
    assert result.error == "cannot connect to 127.0.0.1:1: Connection refused"


def test_a_name_that_leads_nowhere_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: object, **__: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", unknown)
    _, [result] = ask(fine, {"url": "http://nowhere.invalid:80/"})
    assert (result.final, result.error) == (
        False,
        "the name nowhere.invalid does not lead to an address: Name or service not known",
    )


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"", "the connection was closed before an answer came"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", "the answer broke off before its end"),
        (b"SMTP ready\r\n\r\n", "what came is no HTTP answer: "),
    ],
    ids=["closed", "cut", "no HTTP"],
)
def test_an_answer_that_is_none_is_said_plainly(sent: bytes, says: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            connection.recv(65536)
            connection.sendall(sent)
            connection.close()

        teller = threading.Thread(target=answer, daemon=True)
        teller.start()
        _, [result] = ask(fine, {"url": f"http://127.0.0.1:{server.getsockname()[1]}/"})
        teller.join(5)
    assert (result.kind, result.final) == (Kind.FAILED, False)
    assert (result.error or "").startswith(says)
    assert "\n" not in (result.error or "")


def test_tls_that_is_none_is_said_plainly() -> None:
    target, [result] = ask(fine, {"url": "https://127.0.0.1:0/"})
    assert not target.requests
    assert (result.error or "").startswith("no TLS with 127.0.0.1:")
    assert (result.error or "").endswith(": wrong version number")


@pytest.mark.parametrize("wrong", [{"headers": 5}, {"body": {}, "retries": 3}])
def test_what_is_no_call_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadPayload, match="the payload is not an http call"):
        ask(fine, wrong)


@pytest.mark.parametrize("url", ["http://[bad/", "nowhere", "http://"])
def test_what_is_no_url_is_refused_without_quoting_it(url: str) -> None:
    _, [result] = ask(fine, {"url": url})
    assert (result.error, result.final) == ("the payload's url cannot be used", True)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0", "[::ffff:127.0.0.1]", "[::1]", "10.0.0.1"]
)
def test_addresses_that_are_not_public_are_refused_however_they_are_written(host: str) -> None:
    target, [result] = ask(fine, {"url": f"http://{host}:0/"}, allowed=())
    assert (result.kind, result.final) == (Kind.FAILED, True)
    error = result.error or ""
    assert "not a public address (CRONSTREAM_HTTP_ALLOW)" in error or error == "the payload's url cannot be used"
    assert not target.requests


def test_a_name_that_leads_elsewhere_the_second_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address is judged where it is connected to, so it does not matter what a name said before."""
    answers = iter(["93.184.215.14", "127.0.0.1"])
    asked = []

    async def rebinding(_: object, host: str, port: int, **more: object) -> list[tuple[object, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", rebinding)
    assert asyncio.run(_first_of(rebinding)) == "93.184.215.14"
    target, [result] = ask(fine, {"url": "http://rebind.example:0/"}, allowed=())
    assert asked[-1] == "rebind.example"
    assert (result.final, target.requests) == (True, [])


async def _first_of(resolve: Callable[..., Awaitable[list[tuple[object, ...]]]]) -> object:
    [(*_, place)] = await resolve(None, "rebind.example", 80)
    return place[0]  # type: ignore[index]


def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    _, [result] = ask(fine, {})
    assert result.kind is Kind.SUCCEEDED


def test_a_request_has_a_time_of_its_own() -> None:
    async def slow(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    _, [result] = ask(slow, {"timeout_seconds": 0.2})
    assert (result.kind, result.error, result.final) == (Kind.FAILED, "no answer within 0.2 s", False)


def test_secrets_do_not_come_back() -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.Response(status=400, text="." * (BODY_BYTES - 30) + str(request.headers["Authorization"]) * 3)

    _, [result] = ask(echo, {"headers": {"Authorization": "Bearer abcdefghijklmnop"}})
    assert "abcd" not in (result.output or "")
    assert (result.output or "").endswith("******")


@pytest.mark.parametrize(
    "headers", [{"X Team": "s3cret"}, {"": "s3cret"}, {"X:": "s3cret"}, {"Ü": "s3cret"}, {"X": "s3cret\x7f"}]
)
def test_what_no_header_can_be_is_refused_as_it_is_in_sql(headers: dict[str, str]) -> None:
    target, [result] = ask(fine, {"headers": headers})
    assert (target.requests, result.kind, result.final) == ([], Kind.FAILED, True)
    assert "s3cret" not in str(result.error)


def test_headers_cannot_be_split() -> None:
    target, [result] = ask(fine, {"headers": {"X-Own": "a\r\nX-Evil: b"}})
    assert result.kind is Kind.FAILED
    assert not target.requests
