"""One running installation of the servers: its folder, ports, secrets and variables.

HOME/ports.json      chosen once, kept over restarts
HOME/secrets/        0700; each file 0600
HOME/env             KEY=value lines for the product's processes, no secrets in it
HOME/logs HOME/run   logs and pid files
HOME/postgres ...    each server's own data
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from stack import ports, process

ROLE = DATABASE = "cronstream"


class Home:
    """Paths and facts of one installation. Cheap to make; ``create`` makes the folders."""

    def __init__(
        self, path: Path, *, recording: bool = False, doors: Sequence[str] = (), etcd_members: int = 1
    ) -> None:
        self.path = path.resolve()
        self.recording = recording
        """Only archives.py: its servers leave class archives behind."""
        self.doors = tuple(doors)
        """Only the fault runs: more listeners of Kafka, each advertised at a port that the run serves."""
        self.etcd_members = ("etcd", *(f"etcd-{number}" for number in range(2, etcd_members + 1)))
        """Only the fault runs have more than one: members of one etcd, each a server of its own."""
        self.logs = self.path / "logs"
        self.run = self.path / "run"
        self.secrets = self.path / "secrets"
        self.env_file = self.path / "env"

    def create(self) -> None:
        """Make the folders. Others may pass through to Postgres' data, and read nothing."""
        for folder, mode in ((self.path, 0o711), (self.logs, 0o700), (self.run, 0o700), (self.secrets, 0o700)):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(mode)

    def pid_file(self, name: str) -> Path:
        return self.run / f"{name}.pid"

    def log_file(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def settings_file(self, name: str) -> Path:
        """The settings with which that process was started."""
        return self.run / f"{name}.settings"

    def is_running(self, name: str) -> bool:
        """Whether the process of that name runs."""
        return process.running(self.pid_file(name)) is not None

    def port(self, name: str) -> int:
        """The port of that name, chosen when it is first asked for."""
        with self._locked("ports.lock"):
            known = self._ports()
            if name not in known:
                known[name] = ports.choose(known.values())
                self._write_ports(known)
            return known[name]

    def release_taken_ports(self) -> None:
        """Forget ports on which somebody else listens. Only while nothing of this home runs."""
        with self._locked("ports.lock"):
            known = self._ports()
            self._write_ports({name: port for name, port in known.items() if ports.is_free(port)})

    def secret(self, name: str) -> str:
        """A generated password: letters and digits, made once, kept in a file of its own."""
        file = self.secrets / name
        # Servers are prepared at the same time, and all must see the same one.
        with self._locked("secrets.lock"):
            if not file.exists():
                write_private(file, secrets.token_hex(24))
            return file.read_text()

    @property
    def password_file(self) -> Path:
        return self.secrets / "postgres_password"

    @property
    def connect_secrets_file(self) -> Path:
        """What connectors refer to as ${file:PATH:KEY}."""
        return self.secrets / "connect.properties"

    def write_connect_secrets(self) -> None:
        """Keys: postgres.user, postgres.password."""
        password = self.secret("postgres_password")
        write_private(self.connect_secrets_file, f"postgres.user={ROLE}\npostgres.password={password}\n")

    def environment(self) -> dict[str, str]:
        """What every process of the product needs to find the servers."""
        return {
            "CRONSTREAM_HOME": str(self.path),
            "CRONSTREAM_POSTGRES": f"host=127.0.0.1 port={self.port('postgres')} dbname={DATABASE} user={ROLE}",
            "CRONSTREAM_POSTGRES_PASSWORD_FILE": str(self.password_file),
            "CRONSTREAM_KAFKA": f"127.0.0.1:{self.port('kafka')}",
            "CRONSTREAM_ETCD": ",".join(f"127.0.0.1:{self.port(member)}" for member in self.etcd_members),
            "CRONSTREAM_CONNECT": f"http://127.0.0.1:{self.port('connect')}",
            "CRONSTREAM_CONNECT_SECRETS": str(self.connect_secrets_file),
        }

    def write_env(self, more: Mapping[str, str] = MappingProxyType({})) -> str:
        """Write the env file, with ``more`` in it, and return its text."""
        text = render_env({**self.environment(), **more})
        self.env_file.write_text(text)
        return text

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """One ``up`` or ``down`` at a time."""
        self.create()
        with self._locked("lock"):
            yield

    def wipe(self) -> None:
        """Delete the data, logs and secrets of this home."""
        shutil.rmtree(self.path, ignore_errors=True)

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        self.run.mkdir(parents=True, exist_ok=True)
        with (self.run / name).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _ports(self) -> dict[str, int]:
        file = self.path / "ports.json"
        known: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
        return known

    def _write_ports(self, known: dict[str, int]) -> None:
        (self.path / "ports.json").write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def render_env(values: dict[str, str]) -> str:
    """KEY='value' lines: read by shells and by ``parse_env`` alike."""
    for key, value in values.items():
        if "'" in value or "\n" in value:
            raise ValueError(f"{key} holds a quote or a line break")
    return "".join(f"{key}='{value}'\n" for key, value in values.items())


def parse_env(text: str) -> dict[str, str]:
    """The inverse of ``render_env``; bare values are accepted too."""
    values = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith("#"):
            values[key] = value.removeprefix("'").removesuffix("'")
    return values


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner can read, from its first byte on, and that is never seen half."""
    descriptor, unfinished = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
    with os.fdopen(descriptor, "w") as out:
        out.write(text)
    Path(unfinished).replace(file)
