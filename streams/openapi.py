"""What the status pages answer, as an OpenAPI 3.1 document. The examples are checked against the pages by tests."""

from __future__ import annotations

from typing import Any

from cronstream import __version__
from streams.listing import MOST, USUAL
from streams.parameters import LARGEST_ID
from streams.stages import COUNTERS
from streams.status import COUNTED, KEPT_RUNS, STATES

_INSTANT = {"type": "string", "format": "date-time", "description": "UTC"}
_MAYBE_INSTANT = {**_INSTANT, "type": ["string", "null"]}
_MAYBE_TEXT = {"type": ["string", "null"]}
_COUNT = {"type": "integer", "minimum": 0}
_COUNTS = [kind.name.lower() for kind in COUNTED]


def _object(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


_RUN = {
    "scheduled_time": _INSTANT,
    "request_id": {"type": "integer", "description": "0: the schedule's own run; else the request's"},
    "attempt": {"type": "integer", "description": "numbered from 1; 0: did not run"},
    "state": {"enum": list(STATES)},
    "started_at": _MAYBE_INSTANT,
    "finished_at": _MAYBE_INSTANT,
    "worker": {**_MAYBE_TEXT, "description": "the node that runs or ran it"},
    "error": {**_MAYBE_TEXT, "description": "not of skipped runs"},
    "reason": {**_MAYBE_TEXT, "description": "of skipped runs alone: why"},
}
_EITHER = ("error", "reason")
_REF = "#/components/schemas/"
SCHEMAS: dict[str, Any] = {
    "Run": _object(_RUN, _EITHER),
    "RunOfJob": _object({"job_id": {"type": "integer"}, **_RUN}, _EITHER),
    "Job": _object(
        {
            "job_id": {"type": "integer"},
            "tenant": {"type": "string"},
            "name": {"type": "string"},
            "state": {"enum": list(STATES)},
            "running": {**_COUNT, "description": f"attempts that run now, of the last {KEPT_RUNS} runs"},
            "waiting": {**_COUNT, "description": "runs that wait for the one under way (overlap_policy queue)"},
            "counts": {
                **_object(dict.fromkeys(_COUNTS, _COUNT)),
                "description": "attempts, and runs that did not run, by how they ended",
            },
            "runs": {
                "type": "array",
                "items": {"$ref": _REF + "Run"},
                "maxItems": KEPT_RUNS,
                "description": "newest scheduled time first",
            },
        }
    ),
    "Jobs": _object(
        {
            "jobs": {"type": "array", "items": {"$ref": _REF + "Job"}, "description": "by job id"},
            "after": {"type": ["integer", "null"], "description": "ask for the next page with it; null: no more"},
        }
    ),
    "Health": _object(
        {
            "node": {"type": "string"},
            "member": {"type": "boolean", "description": "whether the consumer group trusts this process"},
            "partitions": {
                "type": "array",
                "items": _object(
                    {
                        "topic": {"type": "string"},
                        "partition": {"type": "integer"},
                        "next_offset": {"type": ["integer", "null"]},
                        "waiting": _COUNT,
                    }
                ),
            },
        }
    ),
    "Stats": _object({**dict.fromkeys(COUNTERS, _COUNT), "running": {"type": ["integer", "null"]}}),
    "Error": _object({"error": {"type": "string"}}),
}

_JOB_ID = {
    "name": "job_id",
    "in": "path",
    "required": True,
    "schema": {"type": "integer", "minimum": 0, "maximum": LARGEST_ID},
    "example": 17,
}


def _answer(schema: str, description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": {"$ref": _REF + schema}}}}


_NO_MEANING = "a parameter that is unknown or means nothing; the error names it"


def _page(
    summary: str,
    schema: str,
    *parameters: dict[str, Any],
    errors: dict[str, str],
    error_body: str = "Error",
    open_: bool = False,
) -> Any:
    answers = {"200": _answer(schema, "the answer"), **{code: _answer(error_body, why) for code, why in errors.items()}}
    answers["400"] = _answer("Error", _NO_MEANING)
    if not open_:
        answers["401"] = _answer("Error", "the token is missing or another one")
    if "503" in answers:
        answers["503"]["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}}
    page: dict[str, Any] = {"summary": summary, "parameters": list(parameters), "responses": answers}
    if open_:
        page["security"] = []
    return {"get": page}


_UNKNOWN = "the owner knows no such job"
_TRY_AGAIN = "a partition is moving, or its owner does not answer"

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {
        "title": "cronstream: status of jobs and runs",
        "version": __version__,
        "description": "Any streams process answers for every job. A 503 says when to try again.",
    },
    "security": [{"token": []}],
    "paths": {
        "/jobs/{job_id}": _page("One job", "Job", _JOB_ID, errors={"404": _UNKNOWN, "503": _TRY_AGAIN}),
        "/jobs/{job_id}/runs/{scheduled_time}": _page(
            f"One of a job's last {KEPT_RUNS} runs",
            "RunOfJob",
            _JOB_ID,
            {
                "name": "scheduled_time",
                "in": "path",
                "required": True,
                "schema": {"type": "string", "format": "date-time"},
                "example": "2026-11-29T19:30:00Z",
            },
            {"name": "request_id", "in": "query", "schema": {"type": "integer", "minimum": 0, "default": 0}},
            errors={"404": "not among them; history may have it", "503": _TRY_AGAIN},
        ),
        "/tenants/{tenant}/jobs": _page(
            "A tenant's jobs by id",
            "Jobs",
            {"name": "tenant", "in": "path", "required": True, "schema": {"type": "string"}, "example": "acme"},
            {
                "name": "state",
                "in": "query",
                "schema": {"enum": list(STATES)},
                "description": "without it: all but deleted jobs",
                "example": "failed",
            },
            {
                "name": "limit",
                "in": "query",
                "schema": {"type": "integer", "minimum": 1, "maximum": MOST, "default": USUAL},
            },
            {
                "name": "after",
                "in": "query",
                "schema": {"type": "integer", "minimum": 0},
                "description": "only jobs with a greater id: the page before says which",
            },
            errors={"503": _TRY_AGAIN},
        ),
        "/health": _page(
            "Whether this process is at work",
            "Health",
            errors={"503": "the consumer group does not trust it right now; the body says the same as with 200"},
            error_body="Health",
            open_=True,
        ),
        "/stats": _page("Counters since this process began", "Stats", errors={}),
        "/openapi.json": {
            "get": {"summary": "This document", "responses": {"200": {"description": "OpenAPI 3.1"}}, "parameters": []}
        },
    },
    "components": {
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        "schemas": SCHEMAS,
    },
}
