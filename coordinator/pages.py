"""Two pages for operators, on loopback unless told otherwise: /health and /stats, as JSON."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Pages:
    """Serves what ``figures`` returns, from a thread of its own."""

    def __init__(self, host: str, port: int, figures: Callable[[], dict[str, Any]]) -> None:
        """``port`` 0 takes a free one."""

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path not in ("/health", "/stats"):
                    self.send_error(404, "there are /health and /stats")
                    return
                body = json.dumps(figures() if self.path == "/stats" else {"ok": True}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

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
