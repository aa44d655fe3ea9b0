"""``python``: a function in a fresh interpreter, under the same guard and limits as a command.

Payload: ``{"entry_point": "package.module:function", "arguments"?: {…}, "limits"?: {…},
"final_exit_codes"?: [2]}``. The function gets one dict: the identity and the
arguments. What it returns is ignored; an exception, on import too, is exit
code 1 with its traceback as output. Only modules that the worker's settings
name are called.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from cronstream.settings import WorkerSettings
from workers.attempt import Attempt, BadPayload, PayloadReader, Result, refused
from workers.handlers.command import inherited
from workers.handlers.limits import AskedLimits, Limits
from workers.handlers.program import Program, identity, run_program

CHILD = Path(__file__).with_name("python_child.py")
_ENTRY_POINT = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)", re.ASCII)


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The payload of a ``python`` job."""

    entry_point: str
    arguments: dict[str, Any] = {}
    limits: AskedLimits = AskedLimits()
    final_exit_codes: list[int] = []


_calls = PayloadReader(Call, "a python call")


class PythonHandler:
    """Calls functions of ``python_modules`` and of what lies below them."""

    def __init__(self, settings: WorkerSettings, environ: Mapping[str, str] = os.environ) -> None:
        self._modules = settings.python_modules
        self._path = [str(folder) for folder in settings.python_path]
        self._output_bytes = settings.output_bytes
        self._limits = Limits.of(settings)
        self._inherited = inherited(settings, environ)

    async def run(self, attempt: Attempt) -> Result:
        call = _calls.read(attempt)
        found = _ENTRY_POINT.fullmatch(call.entry_point)
        if found is None:
            raise BadPayload(f"entry_point is not package.module:function: {call.entry_point[:200]!r}")
        module, function = found.groups()
        if not self._may_call(module):
            return refused(f"module {module[:200]} may not be called on this worker (CRONSTREAM_PYTHON_MODULES)")
        given = {"path": self._path, "call": {**attempt.identity, "arguments": call.arguments}}
        program = Program(
            # Isolated: neither the folder it runs in nor a PYTHON* variable decides what is imported.
            (sys.executable, "-I", str(CHILD), module, function),
            {**self._inherited, **identity(attempt)},
            self._limits.lowered(call.limits),
            msgspec.json.encode(given),
            final_exit_codes=call.final_exit_codes,
        )
        return await run_program(program, attempt, self._output_bytes)

    async def close(self) -> None:
        """Holds nothing."""

    def _may_call(self, module: str) -> bool:
        return any(module == allowed or module.startswith(f"{allowed}.") for allowed in self._modules)
