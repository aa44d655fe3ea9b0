"""Java programs of the stack: heaps for a small machine, one way to be started."""

from __future__ import annotations

import hashlib
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


def archive_folder() -> Path:
    """Where the class archives of this Java and these jars are."""
    found = Path(program()).resolve()
    key = hashlib.sha256(f"{found} {found.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return kafka_libs() / f"archives-{key}"


def recording_folder() -> Path:
    """Where they are while they are being recorded."""
    return kafka_libs() / ".recording"


def command(main_class: str, arguments: Sequence[str], *, options: Sequence[str], recording: bool = False) -> list[str]:
    """The command line of a Kafka program. ``recording`` makes it leave a class archive when it ends."""
    libs = kafka_libs()
    if not libs.is_dir():
        raise StackError("kafka: its jars are not here. Mend: python3.11 -m stack install")
    return [
        program(),
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        *_class_data(main_class, recording),
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={LOG_CONFIGURATION}",
        *options,
        "-cp",
        ":".join(sorted(str(jar) for jar in libs.glob("*.jar"))),
        main_class,
        *arguments,
    ]


def _class_data(main_class: str, recording: bool) -> list[str]:
    if recording:
        return [f"-XX:ArchiveClassesAtExit={recording_folder() / main_class}.jsa"]
    archive = archive_folder() / f"{main_class}.jsa"
    if archive.exists():
        return ["-Xshare:auto", f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    return []
