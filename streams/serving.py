"""The HTTP server below the status pages: what aiohttp answers by itself, before any page, is JSON as well.

That is what is no HTTP (one line in the log, no traceback: anybody can send it) and what no page is asked about.
"""

from __future__ import annotations

import logging

import orjson
from aiohttp import web

log = logging.getLogger(__name__)


def error_page(code: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    """The answer to whatever went wrong."""
    return web.Response(
        body=orjson.dumps({"error": text}), status=code, headers=headers, content_type="application/json"
    )


class JsonRunner(web.AppRunner):
    """Serves an application through connections that say in JSON what they refuse."""

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        handle = made.request_handler

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            try:
                return await handle(request)
            except web.HTTPException as error:
                return error_page(error.status, error.reason)

        return _Server(answer, request_factory=made.request_factory, **made._kwargs)


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer, and close the connection."""
        if status >= 500:
            log.error("A request failed", extra={"action": "answer"}, exc_info=exc)
            text = "this process failed; its log says why"
        else:
            text = " ".join((message or "this is no request").split())
            log.warning("A request is no HTTP: %s", text, extra={"action": "answer", "from": request.remote})
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun, no other can be sent")
        answer = error_page(status, text)
        answer.force_close()
        return answer
