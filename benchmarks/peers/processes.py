"""Programs of the peers' environment: started in its folder, ended with us, their fires read from files."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.installation import BenchError
from benchmarks.leading import TooLate
from benchmarks.peers import environment
from benchmarks.report import FOLDER
from stack import ports

Times = npt.NDArray[np.int64]
"""When jobs fired, in microseconds since the epoch."""

HERE = Path(__file__).parent.resolve()
TOO_LATE = "the set-up took too long"
"""What a peer's program says when it was not up before the instant."""
_LONGEST_S = 400
_LINE_BYTES = 17
"""A fire in a file: sixteen digits and a newline, until the year 2286."""


def python(script: str, arguments: Sequence[object], extra: Mapping[str, str]) -> Times:
    """Run a peer's script, which writes its fires into the file it is given last."""
    return until_written([*interpreter(), f"{script}.py", *map(str, arguments)], extra)


def interpreter() -> list[str]:
    """The peers' own Python."""
    return [str(environment.PYTHON.absolute())]


def until_written(argv: list[str], extra: Mapping[str, str]) -> Times:
    """Run a program to its end and read the file named by its last argument. Raises TooLate, BenchError."""
    file = (FOLDER / "fires.txt").resolve()
    file.unlink(missing_ok=True)
    log_file().unlink(missing_ok=True)
    process = spawn([*argv, str(file)], extra)
    timer = threading.Timer(_LONGEST_S, process.kill)
    timer.start()
    try:
        code = process.wait()
    finally:
        timer.cancel()
        process.kill()
    if code != 0 or not file.exists():
        said = log_file().read_text(errors="replace").strip()
        if TOO_LATE in said[-2000:]:
            raise TooLate(TOO_LATE)
        raise BenchError(f"a peer ended with {code}: {said.splitlines()[-1] if said else 'it printed nothing'}")
    return np.array(file.read_text().split(), np.int64)


@contextmanager
def running(argvs: Sequence[Sequence[str]], extra: Mapping[str, str]) -> Iterator[None]:
    """Programs that are stopped at the end, the last one first."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.extend(spawn(argv, extra) for argv in argvs)
        yield
    finally:
        for process in reversed(started):
            process.terminate()
        for process in reversed(started):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def redis() -> Iterator[int]:
    """A Redis of our own, in memory alone; its port."""
    folder = FOLDER / "redis"
    folder.mkdir(parents=True, exist_ok=True)
    port = ports.choose()
    argv = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder.resolve())]
    with running([argv], {}):
        time.sleep(0.5)
        yield port


class Fires:
    """Files that workers of a peer write their fires to, one a process."""

    def __init__(self) -> None:
        self.prefix = (FOLDER / "fires").resolve()
        for left in self._files():
            left.unlink()

    def _files(self) -> list[Path]:
        return list(self.prefix.parent.glob(f"{self.prefix.name}.*.part"))

    def count(self) -> int:
        """How many there are so far."""
        return sum(file.stat().st_size for file in self._files()) // _LINE_BYTES

    def until(self, count: int, deadline: float) -> Times:
        """Wait for so many, or for the deadline (seconds since the epoch); those that came, in order."""
        while self.count() < count and time.time() < deadline:
            time.sleep(0.1)
        lines = [line for file in self._files() for line in file.read_text().split()]
        return np.sort(np.array(lines, np.int64))


def spawn(argv: Sequence[str], extra: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a program with our variables taken out of its environment."""
    log_file().parent.mkdir(parents=True, exist_ok=True)
    with log_file().open("ab") as log:
        return subprocess.Popen(list(argv), cwd=HERE, env=variables(extra), stdout=log, stderr=subprocess.STDOUT)


def log_file() -> Path:
    """What the peers have printed."""
    return FOLDER / "logs" / "peer.log"


def variables(extra: Mapping[str, str]) -> dict[str, str]:
    """A peer's environment."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("CRONSTREAM_", "PG"))}
    return {**clean, "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1", **extra}
