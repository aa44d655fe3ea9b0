"""Two pages for operators, on loopback unless told otherwise: /health and /stats, as JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Pages:
    """Serves what ``figures`` returns, from a thread of its own."""

    def __init__(self, host: str, port: int, figures: Callable[[], dict[str, Any]]) -> None:
        """``port`` 0 takes a free one."""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, _, query = self.path.partition("?")
                if path not in ("/health", "/stats"):
                    self.send_error(404, "there are /health and /stats")
                elif query:
                    self.send_error(400, f"{path} takes no parameters")
                else:
                    self._answer(200, figures() if path == "/stats" else {"ok": True})

            def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
                """As JSON, those of the base class (an unknown method, say) too."""
                self._answer(code, {"error": message or self.responses[HTTPStatus(code)][0]})

            def _answer(self, code: int, body: dict[str, Any]) -> None:
                encoded = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(encoded)))
                self.end_headers()
                self.wfile.write(encoded)

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: pages are asked every second."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        self.address = f"{host}:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, name="pages", daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
