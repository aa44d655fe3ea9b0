"""Kafka Connect: one worker in distributed mode, with Debezium as its plugin."""

from __future__ import annotations

import signal

from stack import java, ports, properties
from stack.errors import StackError
from stack.home import Home
from stack.paths import CONNECTORS, connect_plugins
from stack.server import Launch, Server

TEMPLATE = CONNECTORS / "connect" / "worker.properties"


def prepare(home: Home) -> Launch:
    """Write the configuration. The worker waits for the broker by itself."""
    if not connect_plugins().is_dir():
        raise StackError("connect: Debezium's jars are not here. Mend: python3.11 -m stack install")
    data = home.path / "connect"
    data.mkdir(exist_ok=True)
    data.chmod(0o700)
    home.write_connect_secrets()
    configuration = data / "worker.properties"
    configuration.write_text(properties.render(TEMPLATE.read_text(), place(home)))
    argv = java.command(
        "org.apache.kafka.connect.cli.ConnectDistributed",
        [str(configuration)],
        options=["-Xms128m", "-Xmx512m", "-XX:TieredStopAtLevel=1"],
        recording=home.recording,
    )
    return Launch(argv, folder=data)


def place(home: Home) -> dict[str, str]:
    """The settings that differ by place."""
    return {
        "bootstrap.servers": f"127.0.0.1:{home.port('kafka')}",
        "listeners": f"http://127.0.0.1:{home.port('connect')}",
        "rest.advertised.host.name": "127.0.0.1",
        "plugin.path": str(connect_plugins()),
        "config.providers.file.param.allowed.paths": str(home.secrets),
    }


def is_ready(home: Home) -> bool:
    """The worker says that it has started and can serve requests."""
    return ports.serves(home.port("connect"), "/health")


CONNECT = Server(
    name="connect",
    ports=("connect",),
    prepare=prepare,
    is_ready=is_ready,
    ready_seconds=120.0,
    stop_signal=signal.SIGTERM,
    stop_seconds=4.0,
)
