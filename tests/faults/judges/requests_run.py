"""NoRunLost, for what users asked for: a run-now is admitted, a backfill for each of its scheduled times."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.events import Command, Request
from tests.faults.history import History
from tests.faults.judges.breach import Breach
from tests.faults.oracle import Expected

PROMISE = "NoRunLost"


def requests_run(history: History, expected: Expected) -> Iterator[Breach]:
    """Each is admitted (once: OneRunPerScheduledTime), unless the job was deleted or its overlap policy said no."""
    answered = {request.command for request in history.of(Request)}
    for command in history.of(Command):
        if command.id not in answered:
            yield Breach(PROMISE, f"the command {command.id} made no request")
    for request in history.of(Request):
        versions = expected.versions[request.job_id]
        if versions[-1].rule is None:
            continue
        skips = [skip for skip in history.skips_by_job.get(request.job_id, ()) if skip.request_id == request.request_id]
        for at in _asked_for(expected, request):
            run = (request.job_id, at, request.request_id)
            if run in history.first_admitted or any(skip.first_us <= at <= skip.last_us for skip in skips):
                continue
            yield Breach(PROMISE, f"a {request.kind} was not admitted", *run)


def _asked_for(expected: Expected, request: Request) -> list[int]:
    if request.kind == "run-now":
        return [request.first_us]
    version = expected.in_force(request.job_id, request.committed_us)
    assert version is not None, "a backfill of a job that was not there"
    return version.times(request.first_us - 1, request.last_us)
