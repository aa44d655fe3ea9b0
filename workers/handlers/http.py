"""``http``: one request a run, over a shared session that keeps connections alive.

Payload: ``{"url": …, "method"?: "POST", "headers"?: {…}, "body"?: any JSON,
"timeout_seconds"?: 5, "retry_on"?: [404]}``. Without a body the target gets an
envelope that says which run it is. The identity always travels in the headers,
whatever the payload asks for.

    2xx                       succeeded
    408, 425, 429, 5xx        failed; tried again, not before what Retry-After says
    any other, redirects too  failed for good, unless the payload's ``retry_on`` has it
    no answer                 failed; tried again
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus

import aiohttp
import msgspec

from cronstream.clock import Clock
from workers.attempt import Attempt, PayloadReader, Result, failed, refused, succeeded
from workers.handlers.addresses import AddressRefused, GuardedSockets, Network
from workers.handlers.http_errors import words
from workers.handlers.retry_after import not_before_us
from workers.handlers.secrets import Secrets
from workers.text import clean

BODY_BYTES = 4 * 1024
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
_PASSING = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The payload of an ``http`` job."""

    url: str
    method: str = "POST"
    headers: dict[str, str] = {}
    body: msgspec.Raw = msgspec.Raw()
    timeout_seconds: float | None = None
    """Of this request alone; the run's deadline ends it anyway."""
    retry_on: list[int] = []
    """Statuses that are tried again although they usually are not."""


_calls = PayloadReader(Call, "an http call")


class HttpHandler:
    """Sends requests to public addresses, and to those in ``allowed``; proxies of the environment are not used."""

    def __init__(self, clock: Clock, allowed: Sequence[Network] = ()) -> None:
        self._clock = clock
        self._session = aiohttp.ClientSession(
            # The slots bound the connections. Idle ones go before common servers drop them.
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=15, ttl_dns_cache=10, socket_factory=GuardedSockets(allowed)
            ),
            timeout=_within(None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding",),
            trust_env=False,
        )

    async def run(self, attempt: Attempt) -> Result:
        call = _calls.read(attempt)
        if (name := next((name for name in call.headers if not _TOKEN.fullmatch(name)), None)) is not None:
            return refused(f"the payload's headers have a name that is no header's: {name[:40]!r}")
        method = call.method.upper()
        body = None if method in _BODILESS else bytes(call.body) or msgspec.json.encode(envelope(attempt))
        secrets = Secrets.of(call.url, call.headers)
        try:
            async with self._session.request(
                method,
                call.url,
                data=body,
                headers=_headers(call.headers, identity(attempt), has_body=body is not None),
                allow_redirects=False,
                timeout=_within(call.timeout_seconds),
            ) as response:
                said = clean(secrets.hide(await _read(response.content, BODY_BYTES)), BODY_BYTES)
                return self._judge(call, response, said or None)
        except TimeoutError:
            return failed("no answer" + (f" within {call.timeout_seconds:g} s" if call.timeout_seconds else ""))
        except aiohttp.InvalidURL:
            return refused("the payload's url cannot be used")
        except (aiohttp.ClientError, OSError) as error:
            return failed(secrets.hide(words(error)), final=_is_refusal(error))
        except ValueError as error:
            return refused(secrets.hide(f"the request cannot be sent: {error}"))

    async def close(self) -> None:
        await self._session.close()

    def _judge(self, call: Call, response: aiohttp.ClientResponse, said: str | None) -> Result:
        status = response.status
        if 200 <= status < 300:
            return succeeded(said)
        error = f"HTTP {status} {response.reason or ''}".rstrip()
        if 500 <= status < 600 or status in _PASSING or status in call.retry_on:
            later = not_before_us(response.headers.get("Retry-After"), self._clock.wall_us())
            return failed(error, said, retry_after_us=later)
        return failed(error, said, final=True)


def identity(attempt: Attempt) -> dict[str, str]:
    """How a target tells which run this is, and that it has seen it."""
    return {
        "Idempotency-Key": attempt.idempotency_key,
        "X-Fencing-Token": str(attempt.token),
        "X-Scheduled-Time": attempt.scheduled_time,
        "X-Attempt": str(attempt.attempt),
        "X-Job-Id": str(attempt.job_id),
    }


def envelope(attempt: Attempt) -> dict[str, str | int]:
    """What a target gets whose payload has nothing for it."""
    return {
        "job": attempt.work.name,
        "tenant": attempt.work.tenant,
        "job_id": attempt.job_id,
        "scheduled_time": attempt.scheduled_time,
        "attempt": attempt.attempt,
        "key": attempt.idempotency_key,
    }


def _headers(asked: Mapping[str, str], own: Mapping[str, str], *, has_body: bool) -> dict[str, str]:
    taken = {name.lower() for name in own}
    headers = {name: text for name, text in asked.items() if name.lower() not in taken} | dict(own)
    if has_body and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = "application/json"
    return headers


def _within(seconds: float | None) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=seconds, connect=None, sock_connect=None, sock_read=None)


def _is_refusal(error: BaseException) -> bool:
    """Whether an address was refused, or all of several were."""
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    return isinstance(error, AddressRefused)


async def _read(content: aiohttp.StreamReader, limit: int) -> str:
    """The first ``limit`` bytes of an answer; what is beyond closes the connection unread."""
    kept = b""
    while len(kept) < limit and (chunk := await content.read(limit - len(kept))):
        kept += chunk
    return kept.decode("utf-8", "replace")
