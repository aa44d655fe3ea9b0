"""Kafka: one KRaft node, broker and controller in one process."""

from __future__ import annotations

import base64
import signal
import socket
import struct
import subprocess
import uuid

from stack import java, properties
from stack.errors import StackError
from stack.home import Home
from stack.paths import CONNECTORS
from stack.server import Launch, Server, clean_environment

TEMPLATE = CONNECTORS / "kafka" / "server.properties"


def prepare(home: Home) -> Launch:
    """Write the configuration; format the storage on the first start."""
    data = home.path / "kafka"
    data.mkdir(exist_ok=True)
    data.chmod(0o700)
    configuration = data / "server.properties"
    configuration.write_text(properties.render(TEMPLATE.read_text(), place(home)))
    if not (data / "log" / "meta.properties").exists():
        _format(home)
    # The optimising compiler would take two fifths of a core for the first minutes, longer than most stacks last.
    options = ["-Xms192m", "-Xmx512m", "-XX:TieredStopAtLevel=1"]
    argv = java.command("kafka.Kafka", [str(configuration)], options=options, recording=home.recording)
    return Launch(argv, folder=data)


def place(home: Home) -> dict[str, str]:
    """The settings that differ by place."""
    clients = f"PLAINTEXT://127.0.0.1:{home.port('kafka')}"
    controller = f"127.0.0.1:{home.port('kafka-controller')}"
    inside = "".join(f",{door}://127.0.0.1:{home.port(door)}" for door in home.doors)
    outside = "".join(f",{door}://127.0.0.1:{home.port(f'{door}-outside')}" for door in home.doors)
    plain = ",".join(f"{listener}:PLAINTEXT" for listener in ("CONTROLLER", "PLAINTEXT", *home.doors))
    return {
        "listener.security.protocol.map": plain,
        "listeners": f"{clients},CONTROLLER://{controller}{inside}",
        "advertised.listeners": clients + outside,
        "controller.quorum.voters": f"1@{controller}",
        "log.dirs": str(home.path / "kafka" / "log"),
    }


def cluster_id() -> str:
    """A new cluster's id: a UUID as Kafka writes it, never with a leading dash."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def is_ready(home: Home) -> bool:
    """The broker answers requests once it has joined its cluster: ask for the versions it speaks."""
    body = struct.pack("!hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection(("127.0.0.1", home.port("kafka")), timeout=1.0) as connection:
            connection.settimeout(2.0)
            connection.sendall(struct.pack("!i", len(body)) + body)
            answer = connection.recv(10)
            return len(answer) == 10 and struct.unpack("!iih", answer)[1:] == (1, 0)
    except OSError:
        return False


def _format(home: Home) -> None:
    configuration = home.path / "kafka" / "server.properties"
    argv = java.command(
        "kafka.tools.StorageTool",
        ["format", "-t", cluster_id(), "-c", str(configuration), "--ignore-formatted"],
        options=["-Xmx128m", "-XX:TieredStopAtLevel=1"],
        recording=home.recording,
    )
    done = subprocess.run(argv, capture_output=True, text=True, env=clean_environment(), check=False)
    if done.returncode != 0:
        home.log_file("kafka").write_text(done.stdout + done.stderr)
        raise StackError(f"kafka: formatting its storage failed. Mend: read {home.log_file('kafka')}")


KAFKA = Server(
    name="kafka",
    ports=("kafka", "kafka-controller"),
    prepare=prepare,
    is_ready=is_ready,
    ready_seconds=60.0,
    stop_signal=signal.SIGTERM,
    stop_seconds=8.0,
)
