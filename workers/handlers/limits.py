"""What a program may take: asked for by a payload, bounded by the worker's settings."""

from __future__ import annotations

import signal
from typing import Self

import msgspec

from cronstream.settings import WorkerSettings
from workers.attempt import BadPayload

MIB = 1 << 20


class AskedLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A payload's ``limits``; what it leaves out is as high as the worker allows."""

    cpu_seconds: int | None = None
    memory_mib: int | None = None
    file_mib: int | None = None
    open_files: int | None = None


class Limits(msgspec.Struct, frozen=True):
    """What holds for one program. Memory is the tree's, and each process' own; the others are a process' own."""

    cpu_seconds: int
    memory_mib: int
    file_mib: int
    """The size of any file that it writes."""
    open_files: int
    tree: int
    """How many processes it may be, at most."""

    @classmethod
    def of(cls, settings: WorkerSettings) -> Self:
        """The most that this worker allows."""
        return cls(
            settings.process_cpu_seconds,
            settings.process_memory_mib,
            settings.process_file_mib,
            settings.process_open_files,
            settings.process_tree,
        )

    def lowered(self, asked: AskedLimits) -> Limits:
        """These, but for what is asked. Raises BadPayload for more than these, and for less than 1."""
        wanted = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not None}
        for name, value in wanted.items():
            most = getattr(self, name)
            if not 1 <= value <= most:
                raise BadPayload(f"limits.{name} is {value}; this worker allows 1 to {most} ({_setting(name)})")
        return msgspec.structs.replace(self, **wanted)

    def passed(self, number: int) -> str | None:
        """The limit for which the kernel sends this signal, and who sets it; None for other signals."""
        if number == signal.SIGXFSZ:
            return f"a file of more than {self.file_mib} MiB ({_set_by('file_mib')})"
        if number == signal.SIGXCPU:
            return f"more than {self.cpu_seconds} s of processor time ({_set_by('cpu_seconds')})"
        return None

    def as_argument(self) -> str:
        """For the guard: five numbers with colons; sizes in bytes."""
        sizes = (self.cpu_seconds, self.memory_mib * MIB, self.file_mib * MIB, self.open_files, self.tree)
        return ":".join(map(str, sizes))


def _setting(name: str) -> str:
    return f"CRONSTREAM_PROCESS_{name.upper()}"


def _set_by(name: str) -> str:
    return f"limits.{name}, at most the worker's {_setting(name)}"
