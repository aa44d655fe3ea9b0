"""etcd: one member, or more of them in the homes of fault runs."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
from functools import partial
from typing import Any

from stack.errors import StackError
from stack.home import Home
from stack.server import Launch, Server


def prepare(name: str, home: Home) -> Launch:
    """etcd needs no preparation beyond its arguments."""
    program = shutil.which("etcd")
    if program is None:
        raise StackError("etcd: not installed. Mend: python3.11 -m stack install")
    clients = f"http://127.0.0.1:{home.port(name)}"
    data = home.path / name
    data.mkdir(exist_ok=True)
    data.chmod(0o700)
    options = {
        "name": name,
        "data-dir": str(data),
        "listen-client-urls": clients,
        "advertise-client-urls": clients,
        "listen-peer-urls": _peers(home, name),
        "initial-advertise-peer-urls": _peers(home, name),
        "initial-cluster": ",".join(f"{member}={_peers(home, member)}" for member in home.etcd_members),
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": "1h",
        "logger": "zap",
        "log-level": "warn",
    }
    return Launch([program, *(f"--{key}={value}" for key, value in options.items())], folder=data)


def is_ready(name: str, home: Home) -> bool:
    """Healthy means that it has a leader and can commit."""
    connection = http.client.HTTPConnection("127.0.0.1", home.port(name), timeout=1.0)
    try:
        connection.request("GET", "/health")
        health = json.loads(connection.getresponse().read())
        return bool(health.get("health") == "true")
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()


def member(name: str) -> Server:
    """The server of that name among the home's ``etcd_members``."""
    return Server(
        name=name,
        ports=(name, f"{name}-peer"),
        prepare=partial(prepare, name),
        is_ready=partial(is_ready, name),
        ready_seconds=30.0,
        stop_signal=signal.SIGTERM,
        stop_seconds=3.0,
    )


def leading(home: Home) -> str | None:
    """The member that leads, as those say that are up; None while they have none."""
    for name in home.etcd_members:
        status = _ask(home, name, "/v3/maintenance/status")
        if status is not None and status.get("leader") == status["header"]["member_id"]:
            return name
    return None


def _ask(home: Home, name: str, path: str) -> dict[str, Any] | None:
    connection = http.client.HTTPConnection("127.0.0.1", home.port(name), timeout=1.0)
    try:
        connection.request("POST", path, "{}")
        answer: dict[str, Any] = json.loads(connection.getresponse().read())
        return answer
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()


def _peers(home: Home, name: str) -> str:
    return f"http://127.0.0.1:{home.port(f'{name}-peer')}"


ETCD = member("etcd")
