"""What a report says of where it was made: hardware, versions, fleet, and what else is running."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from benchmarks import fleet
from benchmarks.measure import cpu_seconds
from benchmarks.report import Value
from stack.postgres import binaries

_LIBRARIES = ("numpy", "confluent-kafka", "psycopg", "msgspec", "croniter", "cronsim", "faust-streaming", "tzdata")
_POMS = {"kafka": "kafka.version", "debezium": "debezium.version"}
_BUSY = 0.05
"""Cores from which on a process is named."""


def machine() -> dict[str, Value]:
    """Hardware and versions."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    values: dict[str, Value] = {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.platform()),
        "python": platform.python_version(),
    }
    return values | {f"version_{name}": version(name) for name in _LIBRARIES} | _servers()


def _servers() -> dict[str, Value]:
    poms = Path(__file__).parents[1] / "connectors"
    found: dict[str, Value] = {}
    for name, tag in _POMS.items():
        pinned = re.search(rf"<{tag}>(.*?)</{tag}>", (poms / name / "pom.xml").read_text())
        found[f"version_{name}"] = pinned[1] if pinned else None
    for name, program in (("postgres", str(binaries() / "postgres")), ("etcd", "etcd")):
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
        number = re.search(r"\d+(\.\d+)+", said)
        found[f"version_{name}"] = number[0] if number else None
    return found


def loaded(seconds: float = 1.0) -> dict[str, Value]:
    """What runs here before anything of ours does: the load, and the busy processes by name with their cores."""
    before = _times()
    time.sleep(seconds)
    return {"load_average_at_start": os.getloadavg()[0], "busy_at_start": busy(before, _times(), seconds)}


def busy(before: Mapping[int, tuple[str, float]], after: Mapping[int, tuple[str, float]], seconds: float) -> str:
    """The processes that took more than a twentieth of a core between two looks, most first."""
    cores: Counter[str] = Counter()
    for pid, (name, spent) in after.items():
        cores[name] += (spent - before.get(pid, (name, 0.0))[1]) / seconds  # type: ignore[assignment]
    named = [f"{name} {share:.2f}" for name, share in cores.most_common() if share > _BUSY]
    return ", ".join(named) or "none"


def _times() -> dict[int, tuple[str, float]]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                found[int(folder.name)] = (
                    (folder / "comm").read_text().strip(),
                    cpu_seconds(int(folder.name), children=False),
                )
            except OSError:
                continue  # it has just ended
    return found


def described() -> dict[str, Value]:
    """The fleet that jobs are drawn from."""
    shapes = fleet.shapes()
    return {
        "source": "/".join(fleet.SOURCE.parts[-3:]),
        "jobs": len(shapes),
        "cron_share": sum(shape.cron is not None for shape in shapes) / len(shapes),
        "payload_bytes": fleet.PAYLOAD_BYTES,
        "distinct_payloads": 0.9,
    }
