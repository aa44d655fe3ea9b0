"""Status over HTTP: answered here, or by the process that owns the job's partition.

    GET /jobs/{job_id}                          the job: state, counts, last runs
    GET /jobs/{job_id}/runs/{scheduled_time}    one of the last runs; older ones are in history
    GET /health                                 how far each partition of this process is
    GET /stats                                  counters of this process

404: the owner knows no such job or run. 503 with Retry-After: the partition is moving, or
its owner does not answer. An answer is given only if the partition was surely ours
after the table was read.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import aiohttp
import orjson
from aiohttp import web

from cronstream.clock import to_us
from cronstream.topics import partition_of
from streams import status
from streams.app import JOBS, StreamsApp
from streams.owners import Owners
from streams.stages import COUNTERS
from streams.status import JobStatus
from streams.tables import PartitionTable

FORWARDED = "X-Cronstream-Forwarded"
FORWARD_SECONDS = 2.0
RETRY_AFTER = {"Retry-After": "1"}


class Moving(Exception):
    """Nobody can be sure about the partition right now."""


class StatusPages:
    """The handlers; one instance a process."""

    def __init__(self, app: StreamsApp, owners: Owners) -> None:
        self._app = app
        self._owners = owners
        self._client: aiohttp.ClientSession | None = None

    def routes(self) -> web.Application:
        """The HTTP application."""
        pages = web.Application()
        pages.router.add_get("/jobs/{job_id}", self.job)
        pages.router.add_get("/jobs/{job_id}/runs/{scheduled_time}", self.run)
        pages.router.add_get("/health", self.health)
        pages.router.add_get("/stats", self.stats)
        pages.cleanup_ctx.append(self._session)
        return pages

    async def _session(self, _: web.Application) -> Any:
        timeout = aiohttp.ClientTimeout(total=FORWARD_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as self._client:
            yield

    async def job(self, request: web.Request) -> web.Response:
        """One job."""
        job_id = _job_id(request)
        try:
            known = self._known(job_id)
        except Moving as moving:
            return await self._forward(request, job_id, moving)
        if known is None:
            return _error(404, f"no job {job_id} has run or was skipped")
        return _json(status.shown(job_id, known))

    async def run(self, request: web.Request) -> web.Response:
        """One of a job's last runs; ``request_id`` in the query, 0 without."""
        job_id = _job_id(request)
        try:
            when = to_us(_instant(request.match_info["scheduled_time"]))
            request_id = int(request.query.get("request_id", "0"))
        except ValueError as error:
            return _error(400, f"scheduled_time is ISO 8601 with a zone, request_id a number: {error}")
        try:
            known = self._known(job_id)
        except Moving as moving:
            return await self._forward(request, job_id, moving)
        for one in known.runs if known else ():
            if (one.scheduled, one.request_id) == (when, request_id):
                return _json({"job_id": job_id, **status.shown_run(one)})
        return _error(404, f"not among the last {status.KEPT_RUNS} runs of job {job_id}; history may have it")

    async def health(self, _: web.Request) -> web.Response:
        """200 while the consumer group trusts this process, else 503."""
        trusted = self._app.membership.trusted()
        lanes = [
            {"topic": tp.topic, "partition": tp.partition, "next_offset": lane.done, "waiting": lane.taken - lane.ended}
            for tp, lane in sorted(self._app.lanes.items())
        ]
        body = {"node": self._app.settings.node, "member": trusted, "partitions": lanes}
        return _json(body) if trusted else _json(body, 503, RETRY_AFTER)

    async def stats(self, _: web.Request) -> web.Response:
        """Counters since the process began, and the runs under way now: null while they are being counted."""
        return _json({**dict.fromkeys(COUNTERS, 0), **self._app.counts, "running": self._app.running()})

    def _known(self, job_id: int) -> JobStatus | None:
        """The job's status, surely current. Raises Moving."""
        settings = self._app.settings
        partition = partition_of(job_id, settings.partitions)
        if self._app.lane_of(settings.topics.outcomes, partition) is None:
            raise Moving(f"partition {partition} is not owned here")
        value = PartitionTable(self._app, self._app.tables[JOBS], partition).get(status.key_of(job_id))
        if self._app.lane_of(settings.topics.outcomes, partition) is None:
            raise Moving(f"partition {partition} moved away")
        return None if value is None else JobStatus.decode(value)

    async def _forward(self, request: web.Request, job_id: int, moving: Moving) -> web.Response:
        address = self._owners.address_of(partition_of(job_id, self._app.settings.partitions))
        if FORWARDED in request.headers or address is None or self._client is None:
            return _error(503, f"try again: {moving}", RETRY_AFTER)
        try:
            async with self._client.get(
                f"http://{address}{request.path_qs}", headers={FORWARDED: self._app.settings.node}
            ) as answer:
                body = await answer.read()
                headers = RETRY_AFTER if answer.status == 503 else {}
                return web.Response(body=body, status=answer.status, headers=headers, content_type="application/json")
        except (aiohttp.ClientError, TimeoutError) as error:
            return _error(503, f"try again: the owner at {address} does not answer: {error!r}", RETRY_AFTER)


def _job_id(request: web.Request) -> int:
    """The path's job id; one that no bigint holds is an id that no job has."""
    text = request.match_info["job_id"]
    if not text.isascii() or not text.isdigit() or int(text) >= 1 << 63:
        raise web.HTTPNotFound(body=orjson.dumps({"error": f"no job {text}"}), content_type="application/json")
    return int(text)


def _instant(text: str) -> datetime:
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("no zone")
    return instant


def _json(body: Any, code: int = 200, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=code, headers=headers, content_type="application/json")


def _error(code: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return _json({"error": text}, code, headers)
