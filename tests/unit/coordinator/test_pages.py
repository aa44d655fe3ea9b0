"""The coordinator's two pages, over real HTTP."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.pages import Pages


@pytest.fixture
def address() -> Iterator[str]:
    pages = Pages("127.0.0.1", 0, lambda: {"published": 3})
    yield pages.address
    pages.close()


@pytest.mark.parametrize(
    ("method", "path", "code", "body"),
    [
        ("GET", "/health", 200, {"ok": True}),
        ("GET", "/stats", 200, {"published": 3}),
        ("GET", "/metrics", 404, {"error": "there are /health and /stats"}),
        ("GET", "/stats?since=1", 400, {"error": "/stats takes no parameters"}),
        ("POST", "/stats", 405, {"error": "this page answers GET, HEAD"}),
        ("BREW", "/health", 405, {"error": "this page answers GET, HEAD"}),
        ("POST", "/metrics", 404, {"error": "there are /health and /stats"}),
    ],
)
def test_every_answer_is_json(address: str, method: str, path: str, code: int, body: dict[str, Any]) -> None:
    connection = http.client.HTTPConnection(address, timeout=5)
    connection.request(method, path)
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Type"], json.loads(answer.read())) == (
        code,
        "application/json",
        body,
    )
    assert answer.headers["Allow"] == ("GET, HEAD" if code == 405 else None)
    connection.close()


def test_head_is_answered_without_a_body(address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=5)
    connection.request("HEAD", "/health")
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Length"], answer.read()) == (200, "12", b"")
    connection.close()


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"\x16\x03\x01\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_no_http_is_refused_without_a_traceback(
    address: str, sent: bytes, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(sent)
        answer = connection.makefile("rb").read()
    assert list(json.loads(answer[answer.index(b"{") :])) == ["error"]
    assert (caplog.records, capfd.readouterr().err) == ([], "")


def test_a_page_that_fails_says_so(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> dict[str, Any]:
        raise ZeroDivisionError

    pages = Pages("127.0.0.1", 0, fails)
    connection = http.client.HTTPConnection(pages.address, timeout=5)
    connection.request("GET", "/stats")
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (500, {"error": "this process failed; its log says why"})
    assert [record.getMessage() for record in caplog.records] == ["A page failed"]
    connection.close()
    pages.close()
