"""``command``: one program a run, without a shell, in a session of its own.

Payload: ``{"argv": ["/usr/bin/thing", "--flag"], "env"?: {…}, "stdin"?: "…", "cwd"?: "/folder",
"limits"?: {…}, "final_exit_codes"?: [2]}``. Off unless the worker's settings
allow it: whoever may write jobs may then run programs here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from cronstream.settings import WorkerSettings
from workers.attempt import Attempt, BadPayload, PayloadReader, Result, refused
from workers.handlers.limits import AskedLimits, Limits
from workers.handlers.program import Program, identity, run_program


class Command(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The payload of a ``command`` job."""

    argv: list[str]
    env: dict[str, str] = {}
    stdin: str = ""
    cwd: str | None = None
    limits: AskedLimits = AskedLimits()
    final_exit_codes: list[int] = []


_commands = PayloadReader(Command, "a command")


class CommandHandler:
    """Exit code 0 has succeeded; any other, or a signal, has failed."""

    def __init__(self, settings: WorkerSettings, environ: Mapping[str, str] = os.environ) -> None:
        self._enabled = settings.command_enabled
        self._output_bytes = settings.output_bytes
        self._limits = Limits.of(settings)
        self._inherited = inherited(settings, environ)

    async def run(self, attempt: Attempt) -> Result:
        if not self._enabled:
            return refused("the command handler is off on this worker: it needs CRONSTREAM_COMMAND_ENABLED=true")
        command = _commands.read(attempt)
        if not command.argv or any("\0" in argument for argument in command.argv):
            raise BadPayload("the payload is not a command: argv must name a program, without NULs")
        program = Program(
            command.argv,
            {**self._inherited, **command.env, **identity(attempt)},
            self._limits.lowered(command.limits),
            command.stdin.encode("utf-8", "replace"),
            command.cwd,
            command.final_exit_codes,
        )
        return await run_program(program, attempt, self._output_bytes)

    async def close(self) -> None:
        """Holds nothing."""


def inherited(settings: WorkerSettings, environ: Mapping[str, str]) -> dict[str, str]:
    """The part of the worker's environment that its programs see."""
    return {name: environ[name] for name in settings.command_inherits if name in environ}
