"""``command``: one program a run, without a shell, in a session of its own.

Payload: ``{"argv": ["/usr/bin/thing", "--flag"], "env"?: {…}, "stdin"?: "…"}``.
The program runs under ``guard.py``, a process of its own that captures the
output to a bound and kills the whole tree: at the deadline, when the program
has ended and left something behind, and when the worker dies. Off unless the
worker's settings allow it: whoever may write jobs may then run programs here.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from workers.attempt import Attempt, Result, failed, succeeded

GUARD = Path(__file__).with_name("guard.py")
KILL_SECONDS = 3.0
"""How long the guard may take to kill its tree before it is killed itself."""
INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "HOME", "TMPDIR")


class Command(msgspec.Struct, frozen=True):
    """The payload of a ``command`` job."""

    argv: list[str]
    env: dict[str, str] = {}
    stdin: str = ""


_commands = msgspec.json.Decoder(Command)


class CommandHandler:
    """Exit code 0 has succeeded; any other, or a signal, has failed."""

    def __init__(self, *, enabled: bool, output_bytes: int, inherited: Mapping[str, str] = os.environ) -> None:
        self._enabled = enabled
        self._output_bytes = output_bytes
        self._environment = {name: inherited[name] for name in INHERITED if name in inherited}

    async def run(self, attempt: Attempt) -> Result:
        if not self._enabled:
            return failed("the command handler is off on this worker (CRONSTREAM_COMMAND_ENABLED)")
        try:
            command = _commands.decode(attempt.work.payload or b"")
        except msgspec.MsgspecError as error:
            return failed(f"the payload is not a command: {error}")
        if not command.argv or any("\0" in argument for argument in command.argv):
            return failed("the payload is not a command: argv must name a program, without NULs")
        guard = await asyncio.create_subprocess_exec(
            # Isolated, without site: starts in a few milliseconds and ignores the job's PYTHON* variables.
            *(sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(self._output_bytes), *command.argv),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**self._environment, **command.env, **identity(attempt)},
            start_new_session=True,
        )
        talk = asyncio.ensure_future(guard.communicate(command.stdin.encode("utf-8", "replace")))
        try:
            said, _ = await asyncio.shield(talk)
        except asyncio.CancelledError:
            attempt.partial_output = await _kill(guard, talk)
            raise
        output = said.decode("utf-8", "replace") or None
        code = guard.returncode
        if code == 0:
            return succeeded(output)
        if code is not None and code < 0:
            if -code == signal.SIGKILL:
                _kill_group(guard.pid)  # The guard itself may be what was killed.
            return failed(f"killed by {signal.Signals(-code).name}", output)
        return failed(f"exit code {code}", output)

    async def close(self) -> None:
        """Holds nothing."""


def identity(attempt: Attempt) -> dict[str, str]:
    """How a program tells which run this is."""
    return {
        "CRONSTREAM_IDEMPOTENCY_KEY": attempt.idempotency_key,
        "CRONSTREAM_FENCING_TOKEN": str(attempt.token),
        "CRONSTREAM_SCHEDULED_TIME": attempt.scheduled_time,
        "CRONSTREAM_ATTEMPT": str(attempt.attempt),
        "CRONSTREAM_JOB_ID": str(attempt.job_id),
        "CRONSTREAM_JOB": attempt.work.name,
        "CRONSTREAM_TENANT": attempt.work.tenant,
    }


async def _kill(guard: asyncio.subprocess.Process, talk: asyncio.Future[tuple[bytes, bytes]]) -> str | None:
    """Kill the tree; what it had said."""
    with contextlib.suppress(ProcessLookupError):
        guard.terminate()
    try:
        async with asyncio.timeout(KILL_SECONDS):
            said, _ = await asyncio.shield(talk)
    except TimeoutError:
        _kill_group(guard.pid)
        said, _ = await talk
    return said.decode("utf-8", "replace") or None


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
