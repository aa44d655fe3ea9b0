"""Two pages for operators, on loopback unless told otherwise: /health and /stats, as JSON."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

log = logging.getLogger(__name__)

_PAGES = ("/health", "/stats")
_METHODS = "GET, HEAD"


class Pages:
    """Serves what ``figures`` returns, from a thread of its own."""

    def __init__(self, host: str, port: int, figures: Callable[[], dict[str, Any]]) -> None:
        """``port`` 0 takes a free one."""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                if path not in _PAGES:
                    self.send_error(404)
                elif query:
                    self.send_error(400, f"{path} takes no parameters")
                else:
                    self._answer(*_page(path, figures))

            do_HEAD = do_GET

            def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
                """As JSON, those of the base class too: what is no HTTP, and 501 for every other method."""
                if code == HTTPStatus.NOT_IMPLEMENTED and self.path.partition("?")[0] not in _PAGES:
                    code = HTTPStatus.NOT_FOUND
                if code == HTTPStatus.NOT_FOUND:
                    self._answer(code, {"error": f"there are {' and '.join(_PAGES)}"})
                elif code == HTTPStatus.NOT_IMPLEMENTED:
                    self._answer(405, {"error": f"this page answers {_METHODS}"}, {"Allow": _METHODS})
                else:
                    self._answer(code, {"error": message or self.responses[HTTPStatus(code)][0]})

            def _answer(self, code: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> None:
                encoded = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(encoded)))
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(encoded)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: pages are asked every second."""

        self._server = _Server((host, port), Handler)
        self.address = f"{host}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="pages", daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _page(path: str, figures: Callable[[], dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    if path == "/health":
        return 200, {"ok": True}
    try:
        return 200, figures()
    except Exception:
        log.exception("A page failed", extra={"action": "answer", "path": path})
        return 500, {"error": "this process failed; its log says why"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """One that goes before it has its answer is nobody's error; anything else is ours."""
        if not isinstance(sys.exception(), OSError):
            log.exception("A page failed", extra={"action": "answer"})
