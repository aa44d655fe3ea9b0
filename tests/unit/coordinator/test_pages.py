"""The coordinator's two pages, over real HTTP."""

from __future__ import annotations

import http.client
import json
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
        ("POST", "/stats", 501, {"error": "Unsupported method ('POST')"}),
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
    connection.close()
