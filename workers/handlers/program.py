"""Runs one program under its guard: what the handlers ``command`` and ``python`` share.

``guard.py`` is a process of its own that holds the program to its limits,
captures the output to a bound and kills the whole tree: at the deadline, when
the program has ended and left something behind, and when the worker dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workers.attempt import Attempt, Result, failed, succeeded
from workers.handlers.limits import Limits
from workers.text import CUT

GUARD = Path(__file__).with_name("guard.py")
LAST_LINE_CHARACTERS = 200
KILL_SECONDS = 3.0
"""How long the guard may take to kill its tree before it is killed itself."""


@dataclass(frozen=True, slots=True)
class Program:
    """What to run, and how."""

    argv: Sequence[str]
    environment: Mapping[str, str]
    limits: Limits
    stdin: bytes = b""
    folder: str | None = None
    final_exit_codes: Collection[int] = ()
    """Those after which a further try is of no use."""


async def run_program(program: Program, attempt: Attempt, output_bytes: int) -> Result:
    """Exit code 0 has succeeded; any other, or a signal, has failed. Nothing of it lives when this ends."""
    try:
        guard = await _start(program, output_bytes)
    except OSError as error:
        # Of the guard's own, that can only be the folder.
        return failed(f"{program.folder or sys.executable}: {error.strerror}")
    talk = asyncio.ensure_future(guard.communicate(program.stdin))
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
        why = program.limits.passed(-code) or last_line(output)
        return failed(_with_reason(f"killed by {signal.Signals(-code).name}", why), output)
    what = _with_reason(f"exit code {code}", last_line(output))
    return failed(what, output, final=code in program.final_exit_codes)


def last_line(output: str | None) -> str | None:
    """The last line with something on it, where programs say what went wrong; the beginning of a long one."""
    lines = (line.strip() for line in reversed((output or "").splitlines()))
    line = next(filter(None, lines), None)
    if line is None or len(line) <= LAST_LINE_CHARACTERS:
        return line
    return line[: LAST_LINE_CHARACTERS - len(CUT)] + CUT


def _with_reason(what: str, why: str | None) -> str:
    return what if why is None else f"{what}: {why}"


def identity(attempt: Attempt) -> dict[str, str]:
    """How a program tells which run this is: in its environment."""
    return {f"CRONSTREAM_{name.upper()}": str(value) for name, value in attempt.identity.items()}


async def _start(program: Program, output_bytes: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        # Isolated, without site: starts in a few milliseconds and ignores the job's PYTHON* variables.
        *(sys.executable, "-I", "-S", str(GUARD), str(os.getpid()), str(output_bytes), program.limits.as_argument()),
        *program.argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=dict(program.environment),
        cwd=program.folder,
        start_new_session=True,
    )


async def _kill(guard: asyncio.subprocess.Process, talk: asyncio.Future[tuple[bytes, bytes]]) -> str | None:
    """Kill the tree; what it had said."""
    with contextlib.suppress(ProcessLookupError):
        guard.terminate()
        guard.send_signal(signal.SIGCONT)  # Its program may have stopped it.
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
