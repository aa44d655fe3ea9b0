"""A process between the worker and one command: bounded output, and no survivors.

Run as ``python -I -S guard.py PARENT OUTPUT_BYTES LIMITS ARGV…``, in a session of its
own. Why a process: PR_SET_PDEATHSIG in a ``preexec_fn`` is not safe beside
threads and reaches the first child only. The guard is the *subreaper* of
everything below it, so that no daemonised grandchild slips away, and it reads a
flood of output on its own account, not on the worker's event loop.

    the program ends        kill what it left behind, write the output, end the same way
    its tree grows too far  kill the tree, say so in the output, end by SIGKILL
    SIGTERM (deadline)      kill the tree, write the output, exit
    the worker dies         the kernel sends SIGTERM: as above
    the guard is killed     the kernel kills the program

Standard library only: it runs without site-packages.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
CHUNK = 1 << 16
PAGE_BYTES = resource.getpagesize()
KILL_ROUNDS = 400
KILL_PAUSE_SECONDS = 0.005
LOOK_SECONDS = 0.5
"""How often the tree is measured. Limits of a process are the kernel's; those of a tree can only be looked at."""

_libc = ctypes.CDLL(None, use_errno=True)


class Limits:
    """What the program may take."""

    def __init__(self, argument: str) -> None:
        self.cpu_seconds, self.memory_bytes, self.file_bytes, self.open_files, self.tree = map(int, argument.split(":"))

    def impose(self) -> None:
        """On this process and whatever it becomes and starts."""
        for what, soft, spare in (
            # One second more to the hard limit: SIGXCPU can be handled, then comes SIGKILL.
            (resource.RLIMIT_CPU, self.cpu_seconds, 1),
            # Of data, not of addresses: many runtimes reserve addresses that they never use.
            (resource.RLIMIT_DATA, self.memory_bytes, 0),
            (resource.RLIMIT_FSIZE, self.file_bytes, 0),
            (resource.RLIMIT_NOFILE, self.open_files, 0),
            (resource.RLIMIT_CORE, 0, 0),
        ):
            _, most = resource.getrlimit(what)
            hard = soft + spare if most == resource.RLIM_INFINITY else min(soft + spare, most)
            resource.setrlimit(what, (min(soft, hard), hard))

    def exceeded(self, tree: dict[int, int]) -> bytes | None:
        """What a tree (resident bytes by process) has too much of."""
        if len(tree) > self.tree:
            return b"more than %d processes" % self.tree
        if sum(tree.values()) > self.memory_bytes:
            return b"more than %d MiB of memory" % (self.memory_bytes >> 20)
        return None


def main(parent: int, bound: int, limits: Limits, argv: list[str]) -> int:
    """Run ``argv``; the exit status it ended with, negative for a signal."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    for number in (signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, lambda *_: None)
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return 1
    out_read, out_write = os.pipe()
    child = os.fork()
    if child == 0:
        _become(argv, out_write, limits)
    os.close(out_write)
    os.close(0)
    os.set_blocking(out_read, False)

    tail = Tail(bound)
    status: int | None = None
    is_open = True
    too_much: bytes | None = None
    signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
    while status is None and not stopped and too_much is None:
        ready, _, _ = select.select([wake_read, *([out_read] if is_open else [])], [], [], 1.0)
        if wake_read in ready and signal.SIGALRM in _drain(wake_read):
            too_much = limits.exceeded(_descendants())
        if out_read in ready:
            is_open = tail.read(out_read)
        status = _reap(child, status)
    status = _kill_tree(child, status)
    for _ in range(64):
        if not tail.read(out_read):
            break
    if too_much is not None:
        tail.add(b"[killed: %s]\n" % too_much)
    os.set_blocking(1, True)
    _write(1, tail.text())
    if stopped:
        return 128 + signal.SIGTERM
    if too_much is not None:
        return -signal.SIGKILL
    return os.waitstatus_to_exitcode(status) if status is not None else 1


class Tail:
    """The last ``bound`` bytes of what is read."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._kept = bytearray()
        self._total = 0

    def read(self, descriptor: int) -> bool:
        """Read once. False at the end of the stream, or when nothing is there."""
        try:
            chunk = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        self.add(chunk)
        return bool(chunk)

    def add(self, chunk: bytes) -> None:
        """The next of it."""
        self._kept += chunk
        self._total += len(chunk)
        if len(self._kept) > self._bound + CHUNK:
            del self._kept[: len(self._kept) - self._bound]

    def text(self) -> bytes:
        """What is kept, and first of all how much is not."""
        if self._total <= self._bound:
            return bytes(self._kept)
        mark = b"[%d bytes in all; the end:]\n" % self._total
        keep = max(0, self._bound - len(mark))
        return (mark + bytes(self._kept[len(self._kept) - keep :]))[: self._bound]


def _become(argv: list[str], out: int, limits: Limits) -> None:
    try:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(out, 1)
        os.dup2(out, 2)
        limits.impose()
        os.execvpe(argv[0], argv, _environment())  # noqa: S606 - without a shell is the point
    except OSError as error:
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    finally:
        os._exit(126)


def _environment() -> dict[bytes, bytes]:
    """What the guard was given: Python itself adds LC_CTYPE where there is no locale."""
    with open("/proc/self/environ", "rb") as given:
        return dict(entry.split(b"=", 1) for entry in given.read().split(b"\0") if b"=" in entry)


def _reap(child: int, status: int | None) -> int | None:
    """Collect what has died; the child's status, once it is among them."""
    while True:
        try:
            pid, found = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == child:
            status = found


def _kill_tree(child: int, status: int | None) -> int | None:
    """Kill every descendant, again until there are none."""
    for _ in range(KILL_ROUNDS):
        status = _reap(child, status)
        below = _descendants()
        if not below:
            break
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        select.select([], [], [], KILL_PAUSE_SECONDS)
    return status


def _descendants() -> dict[int, int]:
    """Every process below this one, and the bytes that it holds in memory."""
    children: dict[int, list[int]] = {}
    resident: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    fields = stat.read().rpartition(b")")[2].split()
                parent, pages = int(fields[1]), int(fields[21])
            except (OSError, IndexError, ValueError):
                continue
            children.setdefault(parent, []).append(int(name))
            resident[int(name)] = pages * PAGE_BYTES
    found = list(children.get(os.getpid(), []))
    for pid in found:
        found += children.get(pid, [])
    return {pid: resident[pid] for pid in found}


def _drain(descriptor: int) -> bytes:
    """The numbers of the signals that came."""
    try:
        return os.read(descriptor, CHUNK)
    except BlockingIOError:
        return b""


def _write(descriptor: int, data: bytes) -> None:
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except OSError:
            return  # The worker is gone: nobody reads it.


def _end(code: int) -> None:
    """End as the program did: by the same signal, so that the worker sees which."""
    if code < 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


if __name__ == "__main__":
    _end(main(int(sys.argv[1]), int(sys.argv[2]), Limits(sys.argv[3]), sys.argv[4:]))
