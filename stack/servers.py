"""The real servers together: up, down, status; and one by one for fault tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from stack import etcd, process, settings
from stack.connect import CONNECT
from stack.errors import StackError
from stack.etcd import ETCD
from stack.home import Home
from stack.kafka import KAFKA
from stack.paths import DEFAULT_HOME, LOCAL
from stack.postgres import POSTGRES
from stack.server import Server
from stack.waiting import Stopwatch, progress, say, wait_until

SERVERS: dict[str, Server] = {server.name: server for server in (POSTGRES, ETCD, KAFKA, CONNECT)}


def of(home: Home) -> dict[str, Server]:
    """The servers of that home: those that every home has, and further members of etcd."""
    return {**SERVERS, **{name: etcd.member(name) for name in home.etcd_members[1:]}}


def up(home: Home, *, quiet: bool = False) -> float:
    """Start what does not run, all at once; return when all are ready, with the seconds it took.

    Running servers are left alone; dead ones come back on their ports and data.
    When one fails, those that this call started are stopped again.
    """
    with home.exclusively():
        all_servers = of(home)
        missing = [name for name in all_servers if not home.is_running(name)]
        if len(missing) == len(all_servers):
            home.release_taken_ports()
        watch = Stopwatch()
        waiting = set(all_servers)
        given_up = threading.Event()

        def bring(name: str) -> None:
            launch(home, name)
            wait_ready(home, name, given_up)
            waiting.discard(name)
            if not quiet and name in missing and not given_up.is_set():
                say(f"  {name} is ready at 127.0.0.1:{home.port(all_servers[name].ports[0])} ({watch.seconds:.1f} s)")

        try:
            with progress(lambda: "waiting for " + ", ".join(sorted(waiting))):
                _all_at_once(bring, all_servers, first_failure=given_up.set)
        except BaseException:
            _stop_all(home, missing)
            raise
        text = home.write_env(settings.shared(home))
        env_file_of(home).write_text(text)
        return watch.seconds


def down(home: Home, *, wipe: bool = False) -> float:
    """Stop every server that ``up`` started; with ``wipe`` delete their data too."""
    if not home.path.exists():
        return 0.0
    watch = Stopwatch()
    with home.exclusively():
        _stop_all(home, of(home))
        home.env_file.unlink(missing_ok=True)
        env_file_of(home).unlink(missing_ok=True)
    if wipe:
        home.wipe()
    return watch.seconds


def env_file_of(home: Home) -> Path:
    """What people take into a shell: the usual home's has a short name beside it."""
    return LOCAL / "env" if home.path == DEFAULT_HOME.resolve() else home.env_file


def start(home: Home, name: str) -> None:
    """Start one server on its port and data, and return once it is ready. A running one is only waited for."""
    launch(home, name)
    wait_ready(home, name)


def launch(home: Home, name: str) -> None:
    """Start one server without waiting until it is ready."""
    home.create()
    if home.is_running(name):
        return
    prepared = of(home)[name].prepare(home)
    process.spawn(
        prepared.argv,
        pid_file=home.pid_file(name),
        log_file=home.log_file(name),
        environment=prepared.environment,
        folder=prepared.folder,
    )


def wait_ready(home: Home, name: str, given_up: threading.Event | None = None) -> None:
    """Wait until a started server answers, or until ``given_up``.

    Raises StackError with its last log lines when it ends or is not ready in time.
    """
    server = of(home)[name]
    died = threading.Event()
    given_up = given_up or threading.Event()

    def settled() -> bool:
        if not home.is_running(name):
            died.set()
        return died.is_set() or given_up.is_set() or server.is_ready(home)

    answered = wait_until(settled, server.ready_seconds)
    if (died.is_set() or not answered) and not given_up.is_set():
        what = "ended while starting" if died.is_set() else f"was not ready after {server.ready_seconds:.0f} s"
        log = home.log_file(name)
        raise StackError(f"{name}: {what}. Its last log lines ({log}):\n{process.tail(log)}")


def stop(home: Home, name: str) -> None:
    """Stop one server in order."""
    server = of(home)[name]
    process.stop(home.pid_file(name), server.stop_signal, server.stop_seconds)


def kill(home: Home, name: str) -> None:
    """Crash one server: SIGKILL for it and all its processes."""
    process.kill(home.pid_file(name), family=True)


def restart(home: Home, name: str) -> None:
    """Stop one server in order and start it again."""
    stop(home, name)
    start(home, name)


@dataclass(frozen=True, slots=True)
class State:
    """One line of ``status``."""

    name: str
    running: bool
    ready: bool
    port: int
    pid: int | None
    megabytes: int


def status(home: Home) -> list[State]:
    """What each server does now."""
    return [_state(home, server) for server in of(home).values()]


def _state(home: Home, server: Server) -> State:
    identity = process.running(home.pid_file(server.name))
    return State(
        name=server.name,
        running=identity is not None,
        ready=identity is not None and server.is_ready(home),
        port=home.port(server.ports[0]),
        pid=identity.pid if identity else None,
        megabytes=process.resident_bytes(identity) // 2**20 if identity else 0,
    )


def _stop_all(home: Home, names: Iterable[str]) -> None:
    """Connect goes first: it leaves its group and slot only while broker and Postgres are there."""
    chosen = [name for name in of(home) if name in set(names)]
    with progress(lambda: "stopping " + ", ".join(name for name in chosen if home.is_running(name))):
        if "connect" in chosen:
            stop(home, "connect")
        _all_at_once(lambda name: stop(home, name), chosen)


def _all_at_once(
    action: Callable[[str], None], names: Iterable[str], first_failure: Callable[[], None] = lambda: None
) -> None:
    """Run the action for all names in parallel; the first error is raised, once all have ended.

    ``first_failure`` is called as soon as one fails, to cut the others short.
    """
    with ThreadPoolExecutor(max_workers=8) as pool:
        futures = [pool.submit(action, name) for name in names]
        done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        failed = next((future for future in futures if future in done and future.exception()), None)
        if failed is not None:
            first_failure()
            failed.result()
        for future in futures:
            future.result()
