"""Processes that outlive the command which started them.

Each runs in its own session, with its log in a file and its identity in a pid
file. A pid alone proves nothing, since numbers are used again: the identity
holds the start time and the boot as well, and nothing is signalled unless all
three agree. So ``down`` can only ever end what ``up`` started.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from stack.waiting import wait_until

LOG_LIMIT_BYTES = 64 * 1024 * 1024

# Children of this very process: polled so that none stays a zombie.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class Identity:
    """One process, told apart from any later one with the same number."""

    pid: int
    started: int
    """Clock ticks after boot, from /proc/PID/stat."""
    boot: str


def identify(pid: int) -> Identity | None:
    """The identity of a running process; None when there is none, or only its zombie."""
    fields = _stat(pid)
    if fields is None or (fields[0] in "ZX" and _threads(pid) <= 1):
        return None
    return Identity(pid, int(fields[19]), _boot())


def is_alive(identity: Identity) -> bool:
    """Whether that very process still runs."""
    child = _children.get(identity.pid)
    if child is not None and child.poll() is not None:
        del _children[identity.pid]
    return identify(identity.pid) == identity


def spawn(
    argv: Sequence[str],
    *,
    pid_file: Path,
    log_file: Path,
    environment: Mapping[str, str],
    folder: Path,
) -> Identity:
    """Start ``argv`` in its own session, write its pid file, return its identity."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    if log_file.exists() and log_file.stat().st_size > LOG_LIMIT_BYTES:
        log_file.replace(log_file.with_suffix(".log.1"))
    with log_file.open("ab") as log:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )
    _children[child.pid] = child
    # A child that is already gone has no start time; its death shows in the log.
    identity = identify(child.pid) or Identity(child.pid, 0, _boot())
    pid_file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = pid_file.with_suffix(".new")
    unfinished.write_text(json.dumps(asdict(identity)))
    unfinished.replace(pid_file)
    return identity


def read_pid_file(pid_file: Path) -> Identity | None:
    """The identity that was written there; None when there is no readable one."""
    try:
        return Identity(**json.loads(pid_file.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def running(pid_file: Path) -> Identity | None:
    """The process of that pid file, if it still runs."""
    identity = read_pid_file(pid_file)
    return identity if identity and is_alive(identity) else None


def descendants(pid: int) -> list[Identity]:
    """Every process below ``pid``, whatever session it moved to."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))) is not None:
            children.setdefault(int(fields[1]), []).append(int(entry))
    found: list[Identity] = []
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            waiting.append(child)
            if identity := identify(child):
                found.append(identity)
    return found


def send(identity: Identity, number: signal.Signals) -> None:
    """Signal that very process, if it still runs."""
    if is_alive(identity):
        try:
            os.kill(identity.pid, number)
        except ProcessLookupError:
            return


def stop(pid_file: Path, number: signal.Signals, seconds: float) -> bool:
    """End the process of ``pid_file`` and all below it; True when it went by itself.

    First ``number``; what is left after ``seconds`` is killed.
    """
    identity = running(pid_file)
    if identity is None:
        pid_file.unlink(missing_ok=True)
        return True
    family = descendants(identity.pid)
    send(identity, number)
    went = wait_until(lambda: not is_alive(identity), seconds, pause=0.02)
    _kill_all([identity, *family, *(descendants(identity.pid) if not went else [])])
    pid_file.unlink(missing_ok=True)
    return went


def kill(pid_file: Path, *, family: bool) -> None:
    """SIGKILL, now: a crash on purpose. With ``family`` everything below dies at the same moment."""
    identity = running(pid_file)
    if identity is not None:
        _kill_all([identity, *(descendants(identity.pid) if family else [])])
    pid_file.unlink(missing_ok=True)


def resident_bytes(identity: Identity) -> int:
    """Memory held by the process and all below it, shared pages counted once (PSS)."""
    return sum(_memory(member.pid) for member in [identity, *descendants(identity.pid)])


def tail(log_file: Path, lines: int = 25) -> str:
    """The last lines of a log."""
    try:
        text = log_file.read_bytes()[-64 * 1024 :].decode(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"


def size_of(log_file: Path) -> int:
    """How many bytes a log has; 0 where there is none."""
    return log_file.stat().st_size if log_file.exists() else 0


def says(log_file: Path, begin: int, words: bytes) -> bool:
    """Whether the words are in a log after its first ``begin`` bytes; in all of it if it was begun anew meanwhile."""
    try:
        with log_file.open("rb") as log:
            log.seek(begin if size_of(log_file) >= begin else 0)
            return words in log.read()
    except OSError:
        return False


def _kill_all(identities: Sequence[Identity]) -> None:
    for identity in identities:
        send(identity, signal.SIGKILL)
    wait_until(lambda: not any(is_alive(identity) for identity in identities), 5.0, pause=0.01)


def _stat(pid: int) -> list[str] | None:
    """/proc/PID/stat after the command's name: state, parent, ..., start time at 19."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    return text.rpartition(")")[2].split()


def _threads(pid: int) -> int:
    """A killed process shows as a zombie while its other threads still hold its ports and files."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _memory(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return 0
    return 0
