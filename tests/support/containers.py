"""The stack from docker-compose.yml's servers, through testcontainers, where Docker answers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.endpoints import Endpoints

ROOT = Path(__file__).parents[2]
SERVERS = ["postgres", "etcd", "kafka", "connect"]


def docker_answers() -> bool:
    """Whether a Docker engine answers, not just its client."""
    docker = shutil.which("docker")
    if docker is None:
        return False
    asked = subprocess.run([docker, "info"], capture_output=True, check=False, timeout=20)
    return asked.returncode == 0


@contextmanager
def started() -> Iterator[Endpoints]:
    """The compose file's servers alone, up and healthy; removed with their volumes afterwards."""
    from testcontainers.compose import DockerCompose

    subprocess.run(["python3.11", "-m", "stack", "compose-secrets"], check=True, cwd=ROOT)
    compose = DockerCompose(ROOT, compose_file_name="docker-compose.yml", services=SERVERS, wait=True)
    with compose:

        def address(service: str, port: int) -> str:
            return f"127.0.0.1:{compose.get_service_port(service, port)}"

        postgres_port = compose.get_service_port("postgres", 5432)
        yield Endpoints(
            kafka=address("kafka", 9094),
            etcd=address("etcd", 2379),
            connect=f"http://{address('connect', 8083)}",
            postgres=f"host=127.0.0.1 port={postgres_port} user=cronstream",
            password_file=ROOT / ".local" / "compose" / "secrets" / "postgres_password",
            connect_secrets="/run/secrets/connect.properties",
            capture_host="postgres",
            capture_port=5432,
            kill=lambda name: _compose("kill", name),
            start=lambda name: _compose("up", "--detach", "--wait", name),
        )


def _compose(*words: str) -> None:
    subprocess.run(["docker", "compose", *words], check=True, cwd=ROOT)
