"""PostgreSQL: its own data folder, one database, one role; passwords never in an argument or a log."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import signal
import socket
import struct
import subprocess
from pathlib import Path

from stack import process, runas
from stack.errors import StackError
from stack.home import Home
from stack.paths import STACK_CONFIG
from stack.server import Launch, Server, clean_environment

SCRAM_ITERATIONS = 4096


def binaries() -> Path:
    """The newest installed server's folder of programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
    if not found:
        raise StackError("postgres: not installed. Mend: python3.11 -m stack install")
    return found[-1].parent


def prepare(home: Home) -> Launch:
    """Make the data folder on the first start; write the configuration on each."""
    data = home.path / "postgres"
    data.mkdir(exist_ok=True)
    data.chmod(0o700)
    runas.own(data)
    run = runas.prefix(data)
    if not (data / "cronstream-made").exists():
        _make(home, data, run)
    _write_configuration(data)
    _clear_stale_lock(data)
    options = {
        "port": str(home.port("postgres")),
        "listen_addresses": "127.0.0.1",
        # TCP only: a socket's path is limited to 107 bytes, and checkouts lie deep.
        "unix_socket_directories": "",
    }
    argv = [*run, str(binaries() / "postgres"), "-D", str(data)]
    for key, value in options.items():
        argv += ["-c", f"{key}={value}"]
    return Launch(argv, folder=data)


def is_ready(home: Home) -> bool:
    """Postgres accepts sessions once it answers a start-up packet by asking for the password."""
    try:
        with socket.create_connection(("127.0.0.1", home.port("postgres")), timeout=1.0) as connection:
            parameters = b"user\0cronstream\0database\0cronstream\0\0"
            connection.sendall(struct.pack("!II", len(parameters) + 8, 3 << 16) + parameters)
            # Read whole: closing on unread bytes would reset the connection and be logged each time.
            return connection.recv(1024)[:1] == b"R"
    except OSError:
        return False


def scram_verifier(password: str, salt: bytes | None = None) -> str:
    """What Postgres stores instead of the password (RFC 5803), so that no statement carries it."""
    salt = salt if salt is not None else secrets.token_bytes(16)
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, SCRAM_ITERATIONS)
    client = hmac.digest(salted, b"Client Key", "sha256")
    server = hmac.digest(salted, b"Server Key", "sha256")
    stored = hashlib.sha256(client).digest()
    encoded = [base64.b64encode(part).decode() for part in (salt, stored, server)]
    return f"SCRAM-SHA-256${SCRAM_ITERATIONS}:{encoded[0]}${encoded[1]}:{encoded[2]}"


def first_statements(roles_sql: str, verifier: str) -> str:
    """The statements of roles.sql for single-user mode: one a line, no comments, no password."""
    lines = [line for line in roles_sql.splitlines() if line and not line.startswith("--")]
    return "\n".join(lines).replace(":'password'", f"'{verifier}'") + "\n"


def _make(home: Home, data: Path, run: list[str]) -> None:
    for left in data.iterdir():
        # An interrupted first start: begin again rather than run on half a folder.
        subprocess.run(["rm", "-rf", str(left)], check=True)
    _run(
        home,
        "initdb",
        [
            *run,
            str(binaries() / "initdb"),
            f"--pgdata={data}",
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
            "--auth=reject",
            "--no-instructions",
        ],
        data,
        "",
    )
    superuser = scram_verifier(home.secret("postgres_superuser_password"))
    owner = scram_verifier(home.secret("postgres_password"))
    statements = f"ALTER ROLE postgres PASSWORD '{superuser}';\n"
    statements += first_statements((STACK_CONFIG / "roles.sql").read_text(), owner)
    single = [*run, str(binaries() / "postgres"), "--single", "-D", str(data)]
    # Without the first option an error in a statement would be printed and passed over.
    _run(home, "first statements", [*single, "-c", "exit_on_error=on", "postgres"], data, statements)
    (data / "cronstream-made").touch()
    runas.own(data / "cronstream-made")


def _run(home: Home, what: str, argv: list[str], data: Path, stdin: str) -> None:
    done = subprocess.run(
        argv, input=stdin, capture_output=True, text=True, cwd=data, env=clean_environment(), check=False
    )
    if done.returncode != 0:
        home.log_file("postgres").write_text(done.stdout + done.stderr)
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise StackError(f"postgres: {what} failed: {last}. Mend: read {home.log_file('postgres')}")


def _clear_stale_lock(data: Path) -> None:
    """Remove the lock file of a postmaster that is dead.

    Postgres only asks whether some process has that number, so a zombie which nobody
    collected, or a stranger after a reboot, would keep it from starting. A live postmaster
    works in its data folder, and shared memory guards the data even then.
    """
    lock = data / "postmaster.pid"
    if not lock.exists():
        return
    pid = int(lock.read_text().split()[0])
    alive = process.identify(pid) is not None
    if not (alive and Path(f"/proc/{pid}/cwd").resolve() == data.resolve()):
        lock.unlink()


def _write_configuration(data: Path) -> None:
    for name in ("postgresql.conf", "pg_hba.conf"):
        target = data / name
        target.write_text((STACK_CONFIG / name).read_text())
        target.chmod(0o600)
        runas.own(target)


POSTGRES = Server(
    name="postgres",
    ports=("postgres",),
    prepare=prepare,
    is_ready=is_ready,
    ready_seconds=60.0,
    # Fast shutdown: sessions are ended, not waited for.
    stop_signal=signal.SIGINT,
    stop_seconds=5.0,
)
