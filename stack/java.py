"""Java programs of the stack: heaps for a small machine, one way to be started."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from stack.errors import StackError
from stack.paths import CONNECTORS, kafka_libs

LOG_CONFIGURATION = CONNECTORS / "log4j2.properties"


def program() -> str:
    """The java to use: JAVA_HOME's, else the path's."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not found or not Path(found).exists():
        raise StackError("java: not found. Mend: install JDK 17 (openjdk-17-jre-headless) or set JAVA_HOME")
    return found


def command(main_class: str, arguments: Sequence[str], *, options: Sequence[str]) -> list[str]:
    """The command line of a Kafka program."""
    libs = kafka_libs()
    if not libs.is_dir():
        raise StackError("kafka: its jars are not here. Mend: python3.11 -m stack install")
    return [
        program(),
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        "-Xshare:auto",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={LOG_CONFIGURATION}",
        *options,
        "-cp",
        ":".join(sorted(str(jar) for jar in libs.glob("*.jar"))),
        main_class,
        *arguments,
    ]
