"""Small disks: file systems in memory for single folders, to be filled up and freed again. Only root can mount."""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

_SYS_ADMIN = 21
_FILLER = "filler"


def can_mount() -> bool:
    """Whether this process may mount file systems."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:"))
    return bool(int(line.split()[1], 16) >> _SYS_ADMIN & 1)


class Disk:
    """One folder with a file system of its own. It takes as much memory as lies in it."""

    def __init__(self, folder: Path, megabytes: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=True)

    def fill(self) -> None:
        """Not a byte is left."""
        with (self.folder / _FILLER).open("wb") as filler:
            while left := self._left():
                with contextlib.suppress(OSError):  # somebody else took some of it meanwhile: see what is left now
                    os.posix_fallocate(filler.fileno(), filler.seek(0, os.SEEK_END), left)

    def free(self) -> None:
        """There is room again."""
        (self.folder / _FILLER).unlink(missing_ok=True)

    def _left(self) -> int:
        about = os.statvfs(self.folder)
        return about.f_bavail * about.f_frsize


def unmount_below(folder: Path) -> None:
    """Every file system that is mounted below a folder, those of an interrupted run included."""
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for place in mounted:
        if Path(place).is_relative_to(folder):
            subprocess.run(["umount", "--lazy", place], check=True)
