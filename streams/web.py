"""Status over HTTP: answered here, or by the processes that own the jobs' partitions.

    GET /jobs/{job_id}                          the job: state, counts, last runs
    GET /jobs/{job_id}/runs/{scheduled_time}    one of the last runs; older ones are in history
    GET /tenants/{tenant}/jobs                  a tenant's jobs by id: ?state=failed&limit=100&after=17
    GET /health                                 how far each partition of this process is
    GET /stats                                  counters of this process
    GET /openapi.json                           all of this, for programs

400: a parameter is unknown, given twice or means nothing. 404: the owner knows no such job or run. 503
with Retry-After: a partition is moving, or its owner does not answer. An answer is given
only if the partition was surely ours after the table was read. Errors are JSON as well.
Where the installation has a token, all but /health ask for it.
"""

from __future__ import annotations

import logging
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from streams import listing, status
from streams.access import guard
from streams.app import StreamsApp
from streams.forwarding import FORWARDED, Forwarding
from streams.listing import Question
from streams.lookup import Lookup, Moving
from streams.openapi import DOCUMENT
from streams.owners import Owners
from streams.parameters import LARGEST_ID, BadQuestion, instant, known, number
from streams.serving import error_page
from streams.stages import COUNTERS

log = logging.getLogger(__name__)

RETRY_AFTER = {"Retry-After": "1"}
_OWN = "partitions"
"""The parameter that streams processes alone use among themselves."""
_KNOWN = {
    path: frozenset(one["name"] for one in page["get"]["parameters"] if one["in"] == "query")
    for path, page in DOCUMENT["paths"].items()
}
"""By page, the parameters of the query that it takes."""


class StatusPages:
    """The handlers; one instance a process."""

    def __init__(self, app: StreamsApp, owners: Owners) -> None:
        self._app = app
        self._token = app.settings.status_token()
        self._lookup = Lookup(app)
        self._forwarding = Forwarding(app.settings.node, self._token, owners)

    def routes(self) -> web.Application:
        """The HTTP application."""
        pages = web.Application(middlewares=[guard(self._token), errors_as_json, known_parameters])
        pages.router.add_get("/jobs/{job_id}", self.job)
        pages.router.add_get("/jobs/{job_id}/runs/{scheduled_time}", self.run)
        pages.router.add_get("/tenants/{tenant}/jobs", self.jobs)
        pages.router.add_get("/health", self.health)
        pages.router.add_get("/stats", self.stats)
        pages.router.add_get("/openapi.json", self.openapi)
        pages.cleanup_ctx.append(self._forwarding.session)
        return pages

    async def job(self, request: web.Request) -> web.Response:
        """One job."""
        job_id = _job_id(request)
        try:
            known = self._lookup.job(job_id)
        except Moving as moving:
            return await self._forward(request, job_id, moving)
        if known is None:
            return error_page(404, f"no job {job_id} has run or was skipped")
        return _json(status.shown(job_id, known))

    async def run(self, request: web.Request) -> web.Response:
        """One of a job's last runs; ``request_id`` in the query, 0 without."""
        job_id = _job_id(request)
        when = instant(request.match_info, "scheduled_time")
        request_id = number(request.query, "request_id", 0, 0, LARGEST_ID)
        try:
            known = self._lookup.job(job_id)
        except Moving as moving:
            return await self._forward(request, job_id, moving)
        for one in known.runs if known else ():
            if (one.scheduled, one.request_id) == (when, request_id):
                return _json({"job_id": job_id, **status.shown_run(one)})
        return error_page(404, f"not among the last {status.KEPT_RUNS} runs of job {job_id}; history may have it")

    async def jobs(self, request: web.Request) -> web.Response:
        """A tenant's jobs, from all partitions."""
        question = Question.read(request.match_info["tenant"], request.query)
        partitions = self._app.settings.partitions
        try:
            return _json(await listing.answer(question, partitions, self._lookup, self._forwarding))
        except Moving as moving:
            return _moving(moving)

    async def health(self, _: web.Request) -> web.Response:
        """200 while the consumer group trusts this process, else 503."""
        trusted = self._app.membership.trusted()
        lanes = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "next_offset": lane.done.get(tp.topic),
                "waiting": lane.taken - lane.ended,
            }
            for tp, lane in sorted(self._app.lanes.items(), key=lambda one: one[0])
        ]
        body = {"node": self._app.settings.node, "member": trusted, "partitions": lanes}
        return _json(body) if trusted else _json(body, 503, RETRY_AFTER)

    async def stats(self, _: web.Request) -> web.Response:
        """Counters since the process began, and the runs under way now: null while they are being counted."""
        return _json({**dict.fromkeys(COUNTERS, 0), **self._app.counts, "running": self._app.running()})

    async def openapi(self, _: web.Request) -> web.Response:
        """What this process answers, as an OpenAPI document."""
        return _json(DOCUMENT)

    async def _forward(self, request: web.Request, job_id: int, moving: Moving) -> web.Response:
        if FORWARDED in request.headers:
            return _moving(moving)
        try:
            owner = self._forwarding.owner_of(self._lookup.partition_of(job_id))
            code, body = await self._forwarding.get(owner, request.path_qs)
        except Moving as still:
            return _moving(still)
        return web.Response(body=body, status=code, content_type="application/json")


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Whatever goes wrong is answered as JSON, like everything else."""
    try:
        return await handler(request)
    except BadQuestion as bad:
        return error_page(400, str(bad))
    except web.HTTPNotFound:
        return error_page(404, "there is no such page; /openapi.json describes all of them")
    except web.HTTPMethodNotAllowed as error:
        return error_page(
            405, f"this page answers {', '.join(sorted(error.allowed_methods))}", {"Allow": error.headers["Allow"]}
        )
    except web.HTTPException as error:
        return error_page(error.status, error.reason)
    except Exception:
        log.exception("A page failed", extra={"action": "answer", "path": request.path})
        return error_page(500, "this process failed; its log says why")


@web.middleware
async def known_parameters(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A parameter that a page does not know, or that comes twice, is refused, rather than left unheard."""
    resource = request.match_info.route.resource
    if resource is not None:
        own = {_OWN} if FORWARDED in request.headers else set()
        known((name for name, _ in request.query.items()), _KNOWN[resource.canonical] | own)
    return await handler(request)


def _job_id(request: web.Request) -> int:
    return number(request.match_info, "job_id", None, 0, LARGEST_ID)


def _json(body: Any, code: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=code, headers=headers, content_type="application/json")


def _moving(moving: Moving) -> web.Response:
    return error_page(503, f"try again: {moving}", RETRY_AFTER)
