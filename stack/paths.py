"""Where things lie in the checkout."""

from __future__ import annotations

import hashlib
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
LOCAL = CHECKOUT / ".local"
VENV = CHECKOUT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
REQUIREMENTS = CHECKOUT / "requirements.txt"
DEFAULT_HOME = LOCAL / "up"

STACK_CONFIG = CHECKOUT / "stack" / "config"
CONNECTORS = CHECKOUT / "connectors"
KAFKA_POM = CONNECTORS / "kafka" / "pom.xml"
DEBEZIUM_POM = CONNECTORS / "debezium" / "pom.xml"


def digest(*files: Path) -> str:
    """A short hash of the files' contents: the key under which what they describe is kept."""
    total = hashlib.sha256()
    for file in files:
        total.update(file.read_bytes())
    return total.hexdigest()[:12]


def kafka_libs() -> Path:
    """The jars of Kafka and Connect, as the pom of today names them."""
    return LOCAL / "jars" / f"kafka-{digest(KAFKA_POM)}"


def connect_plugins() -> Path:
    """Connect's plugin path: each folder in it is one plugin, loaded on its own."""
    return LOCAL / "jars" / f"plugins-{digest(DEBEZIUM_POM)}"
