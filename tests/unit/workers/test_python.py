"""The python handler, with real interpreters."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from cronstream.records import Kind
from tests.unit.workers.attempts import an_attempt, settings
from workers.attempt import BadPayload, Result
from workers.handlers.python import PythonHandler

MODULE = """
import json, os, sys
import jobs.helpers

def tell(call):
    print(json.dumps({"call": call, "key": os.environ["CRONSTREAM_IDEMPOTENCY_KEY"], "stdin": sys.stdin.read()}))

def fail(call):
    raise LookupError("no such month")

def leave(call):
    sys.exit(call["arguments"]["code"])

def grow(call):
    return bytearray(200 << 20)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package = tmp_path / "jobs"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "helpers.py").touch()
    (package / "monthly.py").write_text(MODULE)
    (package / "broken.py").write_text("raise RuntimeError('not at import')")
    return tmp_path


def call(folder: Path, entry_point: str, modules: tuple[str, ...] = ("jobs",), **payload: Any) -> Result:
    handler = PythonHandler(settings(python_modules=modules, python_path=(folder,)), {"PYTHONPATH": "/nowhere"})
    return asyncio.run(handler.run(an_attempt("python", {"entry_point": entry_point, **payload}, attempt=3)))


def test_the_function_gets_the_identity_and_its_arguments(folder: Path) -> None:
    result = call(folder, "jobs.monthly:tell", arguments={"month": "2026-03", "ü": [1.5, None]})
    assert result.kind is Kind.SUCCEEDED
    assert json.loads(result.output or "") == {
        "call": {
            "idempotency_key": "7-1772953200000000-0",
            "fencing_token": 41,
            "scheduled_time": "2026-03-08T07:00:00Z",
            "attempt": 3,
            "job_id": 7,
            "job": "nightly",
            "tenant": "acme",
            "arguments": {"month": "2026-03", "ü": [1.5, None]},
        },
        "key": "7-1772953200000000-0",
        "stdin": "",
    }


@pytest.mark.parametrize(
    ("entry_point", "says"),
    [
        ("jobs.monthly:fail", "LookupError: no such month"),
        ("jobs.broken:run", "RuntimeError: not at import"),
        ("jobs.nosuch:run", "ModuleNotFoundError: No module named 'jobs.nosuch'"),
        ("jobs.monthly:nosuch", "has no attribute 'nosuch'"),
    ],
)
def test_an_exception_is_a_failure_with_its_traceback(folder: Path, entry_point: str, says: str) -> None:
    result = call(folder, entry_point)
    assert (result.kind, result.final) == (Kind.FAILED, False)
    assert result.error is not None
    assert result.error.startswith("exit code 1: ")
    assert says in result.error
    assert "Traceback" in (result.output or "")


def test_sys_exit_is_an_exit_code(folder: Path) -> None:
    assert call(folder, "jobs.monthly:leave", arguments={"code": 0}).kind is Kind.SUCCEEDED
    assert call(folder, "jobs.monthly:leave", arguments={"code": 3}).error == "exit code 3"
    assert call(folder, "jobs.monthly:leave", arguments={"code": 3}, final_exit_codes=[3]).final


def test_limits_hold(folder: Path) -> None:
    assert "MemoryError" in (call(folder, "jobs.monthly:grow", limits={"memory_mib": 100}).output or "")


@pytest.mark.parametrize("modules", [(), ("job",), ("jobs.other",), ("jobs.monthly.deeper",)])
def test_only_modules_that_the_settings_name_are_called(folder: Path, modules: tuple[str, ...]) -> None:
    result = call(folder, "jobs.monthly:tell", modules)
    assert (result.kind, result.final) == (Kind.FAILED, True)
    assert "CRONSTREAM_PYTHON_MODULES" in (result.error or "")


@pytest.mark.parametrize("entry_point", ["jobs.monthly", "jobs.monthly:a.b", "jobs/monthly:tell", ":tell", "jobs-x:a"])
def test_what_is_no_entry_point_is_refused(folder: Path, entry_point: str) -> None:
    with pytest.raises(BadPayload, match="entry_point is not"):
        call(folder, entry_point)
