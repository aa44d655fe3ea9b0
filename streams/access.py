"""Who may read the status pages: whoever sends the installation's token, where there is one.

``/health`` stays open: it names partitions, not jobs, and what asks it holds no secrets.
"""

from __future__ import annotations

import hmac

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

OPEN = frozenset({"/health"})
_SCHEME = "Bearer "


def headers_of(token: str | None) -> dict[str, str]:
    """What a request sends to be let in."""
    return {} if token is None else {"Authorization": _SCHEME + token}


def is_let_in(authorization: str | None, token: str | None) -> bool:
    """Compared in a time that tells nothing of the token."""
    if token is None:
        return True
    sent = (authorization or "").removeprefix(_SCHEME)
    return hmac.compare_digest(sent.encode(errors="surrogateescape"), token.encode())


def guard(token: str | None) -> Middleware:
    """Answers 401 to whoever does not send the token."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in OPEN and not is_let_in(request.headers.get("Authorization"), token):
            return web.json_response(
                {"error": "send the token of the status pages: Authorization: Bearer <token>"},
                status=401,
                headers={"WWW-Authenticate": "Bearer"},
            )
        return await handler(request)

    return guarded
