"""The product's own processes beside the servers: same pid files, same logs.

They read their settings from CRONSTREAM_* variables alone, so what is started
here is what any process manager would start.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stack import ports, process, servers
from stack.errors import StackError
from stack.home import Home
from stack.paths import CHECKOUT, VENV_PYTHON
from stack.settings import PREFIX, heard
from stack.waiting import progress, say, wait_until

START_SECONDS = 60.0
STOP_SECONDS = 12.0
_HAS_PARTITIONS = b" action=assigned "
HTTP_ALLOW = f"{PREFIX}HTTP_ALLOW"


@dataclass(frozen=True, slots=True)
class Service:
    """One process of the product, by the name that it has in the installation."""

    name: str
    module: str
    page: str | None = None
    """A path that answers 200 once the process is at work; None where it has no pages."""
    joins: bool = False
    """Whether it works as a member of a consumer group, and logs ``action=assigned`` when it has its partitions."""


SERVICES: dict[str, Service] = {
    service.name: service
    for service in (
        Service("capture", "connectors"),
        Service("coordinator-1", "coordinator", page="/health"),
        Service("coordinator-2", "coordinator", page="/health"),
        Service("streams-1", "streams", page="/health"),
        Service("mover", "streams.mover", joins=True),
        Service("history", "streams.sink", joins=True),
        Service("commands", "streams.commands", joins=True),
        Service("alerts", "streams.alerts", joins=True),
        Service("worker-1", "workers", joins=True),
    )
}


def setup(home: Home, settings: Mapping[str, str] | None = None) -> None:
    """Make the schema, the topics and the connector of an installation; harmless when they are there."""
    argv = [str(VENV_PYTHON), "-m", "cli", "setup"]
    environment = {**os.environ, **home.environment(), **(settings or {})}
    log = home.log_file("setup")
    with progress(lambda: "setting up schema, topics and capture"), log.open("wb") as out:
        done = subprocess.run(
            argv, cwd=CHECKOUT, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False
        )
    if done.returncode != 0:
        raise StackError(f"setup: failed. Its last log lines ({log}):\n{process.tail(log)}")


def up(
    home: Home,
    names: Sequence[str] | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    quiet: bool = False,
) -> None:
    """Start the named processes (all by default) that do not run, or run with other settings.

    Returns when they are at work. ``settings`` are CRONSTREAM_* variables beyond those of
    the home. When one process fails, those that this call started are stopped again.
    """
    chosen = [SERVICES[name] for name in names or SERVICES]
    changed = {service.name: names for service in chosen if (names := changes(home, service, settings))}
    for name, variables in changed.items():
        say(f"  {name} is restarted: {', '.join(variables)} changed")
    begun: list[Service] = []
    logged: dict[str, int] = {}
    try:
        for together in rounds(home, chosen, changed):
            _stop_together(home, [service.name for service in together if service.name in changed])
            for service in together:
                begun.append(service)
                logged[service.name] = process.size_of(home.log_file(service.name))
                start(home, service, settings)
            _wait_for_all(home, together, logged)
    except BaseException:
        for service in begun:
            stop(home, service.name)
        raise
    if not quiet:
        for service in begun:
            at = f" at http://127.0.0.1:{status_port(home, service.name)}" if service.page else ""
            say(f"  {service.name} runs{at}")


def rounds(home: Home, chosen: Sequence[Service], changed: Collection[str]) -> Iterator[list[Service]]:
    """Who is to be started together, round after round; ``changed`` names those that run and are to be stopped first.

    Coordinators have a round each, the leader the last: a standby is there to take over.
    """
    apart = [service for service in chosen if service.module == "coordinator" and service.name in changed]
    at_once = [
        service
        for service in chosen
        if service not in apart and (service.name in changed or not home.is_running(service.name))
    ]
    if at_once:
        yield at_once
    for service in sorted(apart, key=lambda one: _leads(home, one)):
        yield [service]


def start(home: Home, service: Service, settings: Mapping[str, str] | None = None) -> None:
    """Start one process without waiting. One that runs already is left alone.

    Tests may start more of a kind: ``start(home, Service("worker-2", "workers"))``.
    """
    if home.is_running(service.name):
        return
    data_folder(home, service).mkdir(parents=True, exist_ok=True)
    whole = {**os.environ, **environment(home, service), **(settings or {})}
    process.spawn(
        [str(VENV_PYTHON), "-m", service.module],
        pid_file=home.pid_file(service.name),
        log_file=home.log_file(service.name),
        environment=whole,
        folder=CHECKOUT,
    )
    home.settings_file(service.name).write_text(json.dumps(_settings_in(whole)))


def changes(home: Home, service: Service, settings: Mapping[str, str] | None = None) -> list[str]:
    """Which settings of its differ from those that the running process was started with; none where it does not run."""
    if not home.is_running(service.name):
        return []
    try:
        began_with = json.loads(home.settings_file(service.name).read_text())
    except (OSError, ValueError):
        began_with = {}
    now = _settings_in({**os.environ, **environment(home, service), **(settings or {})})
    differ = {name for name in began_with.keys() | now if began_with.get(name) != now.get(name)}
    return sorted(differ & heard(service.module)) if differ else []


def _settings_in(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if name.startswith(PREFIX)}


def environment(home: Home, service: Service) -> dict[str, str]:
    """The variables of one process: the home's, its name, its folder, its status port."""
    values = home.environment() | {"CRONSTREAM_NODE": service.name}
    values["CRONSTREAM_DATA_DIR"] = str(data_folder(home, service))
    if service.page:
        values["CRONSTREAM_STATUS_PORT"] = str(status_port(home, service.name))
    if service.module == "workers":
        # Whoever tries things on one machine has the jobs' targets there too.
        values[HTTP_ALLOW] = os.environ.get(HTTP_ALLOW, "127.0.0.0/8,::1/128")
    return values


def data_folder(home: Home, service: Service) -> Path:
    """What the process keeps on this machine; it may be lost without harm."""
    return home.path / "data" / service.name


def status_port(home: Home, name: str) -> int:
    """Where the status pages of that streams process are."""
    return home.port(name)


def stop(home: Home, name: str) -> None:
    """SIGTERM and wait; what is left after the deadline is killed."""
    process.stop(home.pid_file(name), signal.SIGTERM, STOP_SECONDS)


def kill(home: Home, name: str) -> None:
    """SIGKILL for the process alone: what becomes of its children is its own promise."""
    process.kill(home.pid_file(name), family=False)


def down(home: Home) -> None:
    """Stop every process of the product, those that tests added included; servers stay."""
    names = sorted(file.stem for file in home.run.glob("*.pid") if file.stem not in servers.of(home))
    _stop_together(home, names)


def last_words(home: Home, name: str) -> str | None:
    """The last line of the log of a process that ended by itself; None if it runs or was stopped."""
    if process.read_pid_file(home.pid_file(name)) is None or home.is_running(name):
        return None
    return process.tail(home.log_file(name), 1).strip()


def _stop_together(home: Home, names: Sequence[str]) -> None:
    with progress(lambda: "stopping " + ", ".join(name for name in names if home.is_running(name))):
        # All are told before any is waited for.
        for name in names:
            if identity := process.running(home.pid_file(name)):
                process.send(identity, signal.SIGTERM)
        for name in names:
            stop(home, name)


def _wait_for_all(home: Home, together: Sequence[Service], logged: Mapping[str, int]) -> None:
    waiting = {service.name for service in together}
    with progress(lambda: "waiting for " + ", ".join(sorted(waiting))):
        for service in together:
            _wait_at_work(home, service, logged[service.name])
            waiting.discard(service.name)


def _tells(home: Home, service: Service) -> bool:
    """Whether it logs more than warnings."""
    began_with = json.loads(home.settings_file(service.name).read_text())
    return began_with.get(f"{PREFIX}LOG_LEVEL", "INFO") in ("INFO", "DEBUG")


def _leads(home: Home, coordinator: Service) -> bool:
    figures = ports.read(status_port(home, coordinator.name), "/stats")
    return figures is not None and bool(json.loads(figures)["leads"])


def _wait_at_work(home: Home, service: Service, logged: int) -> None:
    """Its page answers 200, or it says that it has its partitions (its log had ``logged`` bytes before); else: alive.

    Kafka is not asked for the group's members: for a while the process that was stopped may be one of them.
    """

    def settled() -> bool:
        if not home.is_running(service.name):
            return True
        if service.page is not None:
            return ports.serves(status_port(home, service.name), service.page)
        if service.joins and _tells(home, service):
            return process.says(home.log_file(service.name), logged, _HAS_PARTITIONS)
        return True

    answered = wait_until(settled, START_SECONDS)
    if not answered and service.joins and home.is_running(service.name):
        # Where others of its kind have all the partitions, or Kafka is away.
        say(f"  {service.name} runs; that it has partitions is not in its log")
        return
    if not answered or not home.is_running(service.name):
        log = home.log_file(service.name)
        raise StackError(f"{service.name}: did not start. Its last log lines ({log}):\n{process.tail(log)}")
