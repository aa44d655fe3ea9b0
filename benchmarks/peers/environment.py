"""What the peers need, made under .local/bench: an environment by pip, jars by Maven, Debian's Redis."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.installation import BenchError
from benchmarks.report import FOLDER
from stack.paths import digest

HERE = Path(__file__).parent
VENV = FOLDER / "peers-venv"
PYTHON = VENV / "bin" / "python"
JAVA = FOLDER / "peers-java"
_SOURCES = sorted((HERE / "java" / "src").rglob("*.java"))


def prepare() -> None:
    """Install what is missing, nothing twice."""
    requirements = HERE / "requirements.txt"
    if _stale(VENV, requirements):
        _run([sys.executable, "-m", "venv", str(VENV)])
        _run([str(VENV / "bin" / "pip"), "install", "-q", "-r", str(requirements)])
        _done(VENV, requirements)
    pom = HERE / "java" / "pom.xml"
    if _stale(JAVA, pom, *_SOURCES):
        shutil.rmtree(JAVA, ignore_errors=True)
        libs = (JAVA / "libs").resolve()
        _run(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={libs}"])
        _run(["javac", "-d", str(JAVA / "classes"), "-cp", f"{libs}/*", *map(str, _SOURCES)])
        _done(JAVA, pom, *_SOURCES)
    if shutil.which("redis-server") is None:
        # Its service must not start on the machine: ours runs on a port of its own.
        environment = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        _run(["apt-get", "install", "-y", "-q", "redis-server"], environment)


def _run(argv: list[str], environment: dict[str, str] | None = None) -> None:
    """Raises BenchError with what it printed last."""
    done = subprocess.run(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise BenchError(f"{Path(argv[0]).name} ended with {done.returncode}: {done.stdout.strip()[-500:]}")


def class_path() -> str:
    """For java -cp."""
    return f"{JAVA / 'classes'}:{JAVA / 'libs'}/*"


def versions() -> dict[str, str]:
    """The peers by name, with their versions."""
    pinned = dict(
        line.strip().split("==") for line in (HERE / "requirements.txt").read_text().splitlines() if "==" in line
    )
    jars = {jar.stem.rpartition("-")[0]: jar.stem.rpartition("-")[2] for jar in (JAVA / "libs").glob("*.jar")}
    return {
        "apscheduler": pinned["APScheduler"],
        "redbeat": f"{pinned['celery-redbeat']} on celery {pinned['celery']}",
        "procrastinate": pinned["procrastinate"],
        "celery": pinned["celery"],
        "dramatiq": pinned["dramatiq"],
        "db-scheduler": jars.get("db-scheduler", "?"),
        "quartz": jars.get("quartz", "?"),
    }


def _stale(folder: Path, *files: Path) -> bool:
    mark = folder / "made"
    return not mark.exists() or mark.read_text() != digest(*files)


def _done(folder: Path, *files: Path) -> None:
    (folder / "made").write_text(digest(*files))
