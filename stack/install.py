"""Bring a bare machine to where the stack and the tests run; install nothing twice.

Each step looks first and acts only on what is missing, so that a second run
costs milliseconds. What was downloaded is kept under the hash of the file that
names it. A step that fails says which one it is and how to mend it.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from stack import archives, java
from stack.errors import StackError
from stack.packages import install_packages
from stack.paths import (
    CHECKOUT,
    DEBEZIUM_POM,
    KAFKA_POM,
    LOCAL,
    REQUIREMENTS,
    VENV,
    VENV_PYTHON,
    connect_plugins,
    digest,
    kafka_libs,
)
from stack.process import tail
from stack.waiting import Stopwatch, progress, say

JAVA_AT_LEAST = 17
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
# The worker's own libraries: a second copy in the plugin folder would be loaded apart.
_NOT_IN_PLUGIN = "org.apache.kafka,org.slf4j,com.github.luben,org.lz4,at.yawk.lz4,org.xerial.snappy"


def install() -> None:
    """Run every step. Raises StackError at the first that fails."""
    watch = Stopwatch()
    LOCAL.mkdir(exist_ok=True)
    steps = (system_packages, java_version, kafka_jars, debezium_jars, archives.make, virtual_environment)
    with (LOCAL / "install.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        acted = [step() for step in steps]
    if any(acted):
        say(f"installed in {watch.seconds:.0f} s")


def system_packages() -> bool:
    """Debian's Postgres and etcd, libfaketime for the fault runs, and whatever else of the ground is missing."""
    wanted = {
        "postgresql": bool(list(Path("/usr/lib/postgresql").glob("*/bin/postgres"))),
        "etcd-server": shutil.which("etcd") is not None,
        "libfaketime": bool(list(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))),
        "openjdk-17-jre-headless": bool(os.environ.get("JAVA_HOME")) or shutil.which("java") is not None,
        "maven": shutil.which("mvn") is not None or (kafka_libs().is_dir() and connect_plugins().is_dir()),
        "python3-venv": VENV_PYTHON.exists() or importlib.util.find_spec("ensurepip") is not None,
    }
    missing = [package for package, there in wanted.items() if not there]
    if missing:
        install_packages(missing, run_logged)
    return bool(missing)


def java_version() -> bool:
    """Kafka 4 and Debezium 3 are compiled for Java 17."""
    said = subprocess.run([java.program(), "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA_AT_LEAST:
        raise StackError(
            f"java: Kafka needs Java {JAVA_AT_LEAST} or later, {java.program()} is "
            f"{found[1] if found else 'of unknown version'}. Mend: set JAVA_HOME to a JDK {JAVA_AT_LEAST}"
        )
    return False


def kafka_jars() -> bool:
    """Kafka and Connect, with exactly one logging interface and one binding."""
    if kafka_libs().is_dir():
        return False
    fetched = _maven("kafka jars", KAFKA_POM, "libs")
    for pattern in ("slf4j-api-*.jar", "log4j-slf4j*-impl-*.jar"):
        found = sorted(jar.name for jar in fetched.glob(pattern))
        if len(found) != 1:
            raise StackError(
                f"kafka jars: {pattern} must match one jar, it matches {found}: the servers would log nothing. "
                f"Mend: correct {KAFKA_POM.relative_to(CHECKOUT)}"
            )
    _keep(fetched, kafka_libs())
    return True


def debezium_jars() -> bool:
    """The Debezium PostgreSQL connector, as one plugin folder."""
    if connect_plugins().is_dir():
        return False
    fetched = _maven("debezium jars", DEBEZIUM_POM, "debezium-postgres", f"-DexcludeGroupIds={_NOT_IN_PLUGIN}")
    stray = [jar.name for jar in fetched.glob("*.jar") if jar.name.startswith(("kafka-clients", "connect-", "slf4j"))]
    if stray or not list(fetched.glob("debezium-connector-postgres-*.jar")):
        raise StackError(
            f"debezium jars: the plugin folder lacks the connector or holds the worker's jars {stray}. "
            f"Mend: correct {DEBEZIUM_POM.relative_to(CHECKOUT)}"
        )
    parent = fetched.with_name("debezium-plugins")
    shutil.rmtree(parent, ignore_errors=True)
    parent.mkdir()
    fetched.rename(parent / "debezium-postgres")
    _keep(parent, connect_plugins())
    return True


def virtual_environment() -> bool:
    """.venv with exactly the locked requirements, the checkout importable, and the command in bin/."""
    stamp = VENV / "cronstream-requirements"
    version = ".".join(map(str, sys.version_info[:3]))
    key = f"{digest(REQUIREMENTS)} {version} {CHECKOUT}"
    if stamp.exists() and stamp.read_text() == key and VENV_PYTHON.exists():
        return False
    watch = Stopwatch()
    if not _works(VENV_PYTHON):
        run_logged("venv", [sys.executable, "-m", "venv", "--clear", str(VENV)], "install python3-venv")
    pip = [str(VENV_PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    run_logged(
        "python packages",
        [*pip, "--require-hashes", "--requirement", str(REQUIREMENTS)],
        "see that the package index can be reached, then run the command again",
    )
    _make_importable()
    stamp.write_text(key)
    say(f"  python packages: ready ({watch.seconds:.0f} s)")
    return True


def run_logged(
    step: str, argv: Sequence[str], mend: str, environment: Mapping[str, str] | None = None, attempts: int = 1
) -> None:
    """Run a program that may take long: progress on the terminal, its output in a log.

    Raises StackError with the log's last lines after the last attempt.
    """
    log = LOCAL / "logs" / f"install-{step.replace(' ', '-')}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, attempts + 1):
        with progress(lambda: step), log.open("wb") as out:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=CHECKOUT,
                env={**os.environ, **(environment or {})},
                check=False,
            )
        if done.returncode == 0:
            return
        if attempt < attempts:
            say(f"  {step}: failed, trying once more")
    raise StackError(f"{step}: failed. Mend: {mend}. Its last lines ({log}):\n{tail(log, 15)}")


def _maven(step: str, pom: Path, name: str, *options: str) -> Path:
    """Let Maven resolve a pom and copy its jars into a new folder; return that."""
    watch = Stopwatch()
    target = LOCAL / "jars" / f".fetching-{name}"
    shutil.rmtree(target, ignore_errors=True)
    argv = ["mvn", "-B", "-q", "-ntp", "-f", str(pom), _COPY, "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
    mend = "see that Maven can reach its repository (mvn -v; ~/.m2/settings.xml), then run the command again"
    run_logged(step, [*argv, *options], mend, attempts=2)
    say(f"  {step}: {len(list(target.glob('*.jar')))} ({watch.seconds:.0f} s)")
    return target


def _keep(fetched: Path, final: Path) -> None:
    """Whole or not at all: an interrupted install leaves nothing that looks finished."""
    fetched.rename(final)


def _works(python: Path) -> bool:
    if not python.exists():
        return False
    question = "import pip, sys; sys.exit(sys.version_info < (3, 11))"
    return subprocess.run([str(python), "-c", question], capture_output=True, check=False).returncode == 0


def _make_importable() -> None:
    """What an editable install would do, without building anything."""
    packages = next((VENV / "lib").glob("python3.*")) / "site-packages"
    (packages / "cronstream-checkout.pth").write_text(f"{CHECKOUT}\n")
    command = VENV / "bin" / "cronstream"
    command.write_text(f"#!{VENV_PYTHON}\nimport sys\n\nfrom cli.main import main\n\nsys.exit(main())\n")
    command.chmod(0o755)
