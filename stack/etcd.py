"""etcd: one node that elects itself."""

from __future__ import annotations

import http.client
import json
import shutil
import signal

from stack.errors import StackError
from stack.home import Home
from stack.server import Launch, Server


def prepare(home: Home) -> Launch:
    """etcd needs no preparation beyond its arguments."""
    program = shutil.which("etcd")
    if program is None:
        raise StackError("etcd: not installed. Mend: python3.11 -m stack install")
    clients = f"http://127.0.0.1:{home.port('etcd')}"
    peers = f"http://127.0.0.1:{home.port('etcd-peer')}"
    data = home.path / "etcd"
    data.mkdir(exist_ok=True)
    data.chmod(0o700)
    options = {
        "name": "local",
        "data-dir": str(data),
        "listen-client-urls": clients,
        "advertise-client-urls": clients,
        "listen-peer-urls": peers,
        "initial-advertise-peer-urls": peers,
        "initial-cluster": f"local={peers}",
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": "1h",
        "logger": "zap",
        "log-level": "warn",
    }
    return Launch([program, *(f"--{key}={value}" for key, value in options.items())], folder=data)


def is_ready(home: Home) -> bool:
    """Healthy means that it has a leader and can commit."""
    connection = http.client.HTTPConnection("127.0.0.1", home.port("etcd"), timeout=1.0)
    try:
        connection.request("GET", "/health")
        health = json.loads(connection.getresponse().read())
        return bool(health.get("health") == "true")
    except (OSError, http.client.HTTPException, ValueError):
        return False
    finally:
        connection.close()


ETCD = Server(
    name="etcd",
    ports=("etcd", "etcd-peer"),
    prepare=prepare,
    is_ready=is_ready,
    ready_seconds=30.0,
    stop_signal=signal.SIGTERM,
    stop_seconds=3.0,
)
