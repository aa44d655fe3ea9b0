"""``http``: one request a run, over a shared session that keeps connections alive.

Payload: ``{"url": …, "method"?: "POST", "headers"?: {…}, "body"?: any JSON}``.
Without a body the target gets an envelope that says which run it is. The
identity always travels in the headers, whatever the payload asks for.
"""

from __future__ import annotations

import aiohttp
import msgspec

from workers.attempt import Attempt, Result, failed, succeeded

BODY_BYTES = 4 * 1024
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


class Call(msgspec.Struct, frozen=True):
    """The payload of an ``http`` job."""

    url: str
    method: str = "POST"
    headers: dict[str, str] = {}
    body: msgspec.Raw = msgspec.Raw()


_calls = msgspec.json.Decoder(Call)


class HttpHandler:
    """2xx has succeeded; everything else, redirects too, has failed. The runner's deadline is the only one."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            # The slots bound the connections. Idle ones go before common servers drop them.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=15, ttl_dns_cache=10),
            timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding",),
        )

    async def run(self, attempt: Attempt) -> Result:
        try:
            call = _calls.decode(attempt.work.payload or b"")
        except msgspec.MsgspecError as error:
            return failed(f"the payload is not an http call: {error}")
        method = call.method.upper()
        own = identity(attempt)
        taken = {name.lower() for name in own}
        headers = {name: text for name, text in call.headers.items() if name.lower() not in taken} | own
        body = None if method in _BODILESS else bytes(call.body) or envelope(attempt)
        if body is not None and not any(name.lower() == "content-type" for name in headers):
            headers["Content-Type"] = "application/json"
        try:
            async with self._session.request(
                method, call.url, data=body, headers=headers, allow_redirects=False
            ) as response:
                said = await _read(response.content, BODY_BYTES)
                if 200 <= response.status < 300:
                    return succeeded(said or None)
                return failed(f"HTTP {response.status} {response.reason or ''}".rstrip(), said or None)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return failed(f"{type(error).__name__}: {error}")

    async def close(self) -> None:
        await self._session.close()


def identity(attempt: Attempt) -> dict[str, str]:
    """How a target tells which run this is, and that it has seen it."""
    return {
        "Idempotency-Key": attempt.idempotency_key,
        "X-Fencing-Token": str(attempt.token),
        "X-Scheduled-Time": attempt.scheduled_time,
        "X-Attempt": str(attempt.attempt),
        "X-Job-Id": str(attempt.job_id),
    }


def envelope(attempt: Attempt) -> bytes:
    """The body of a call whose payload has none."""
    return msgspec.json.encode(
        {
            "job": attempt.work.name,
            "tenant": attempt.work.tenant,
            "job_id": attempt.job_id,
            "scheduled_time": attempt.scheduled_time,
            "attempt": attempt.attempt,
            "key": attempt.idempotency_key,
        }
    )


async def _read(content: aiohttp.StreamReader, limit: int) -> str:
    """The first ``limit`` bytes of an answer; what is beyond closes the connection unread."""
    kept = b""
    while len(kept) < limit and (chunk := await content.read(limit - len(kept))):
        kept += chunk
    return kept.decode("utf-8", "replace")
