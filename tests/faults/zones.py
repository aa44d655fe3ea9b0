"""Two zones whose clocks change in the middle of the run, in a copy of the time zone data made for it.

The product reads PyPI's tzdata and nothing else, so the coordinators get a copy
of that package in front of it, with two zones replaced that no job uses otherwise:
one skips two minutes at 02:00, the other has the two minutes before 02:00 twice.
"""

from __future__ import annotations

import shutil
import struct
from importlib.resources import as_file, files
from pathlib import Path

from tests.faults.events import Jump

FORWARD, BACK = "Antarctica/Troll", "Antarctica/Vostok"
JUMP_SECONDS = 120
_HEADER = struct.Struct(">4s1s15x6l")
_DAY = 86_400


def jumps_at(instant_us: int) -> tuple[Jump, Jump]:
    """Both change at the first whole minute from an instant on, at 02:00 by their clocks before it."""
    at = -(-instant_us // 60_000_000) * 60
    before = (2 * 3600 - at) % _DAY
    before -= _DAY if before > _DAY // 2 else 0
    return (
        Jump(FORWARD, at * 1_000_000, before, before + JUMP_SECONDS),
        Jump(BACK, at * 1_000_000, before, before - JUMP_SECONDS),
    )


def make_tzdata(folder: Path, jumps: tuple[Jump, ...]) -> Path:
    """Write the copy; returns the folder to put in front of PYTHONPATH."""
    with as_file(files("tzdata")) as original:
        shutil.copytree(original, folder / "tzdata", dirs_exist_ok=True)
    for jump in jumps:
        (folder / "tzdata" / "zoneinfo" / jump.zone).write_bytes(tzif(jump))
    return folder


def tzif(jump: Jump) -> bytes:
    """A TZif file of version 2 with that one change (RFC 9636)."""
    empty = _HEADER.pack(b"TZif", b"2", 0, 0, 0, 0, 1, 4) + struct.pack(">lBB", 0, 0, 0) + b"LMT\0"
    header = _HEADER.pack(b"TZif", b"2", 0, 0, 0, 1, 2, 8)
    change = struct.pack(">qB", jump.at_us // 1_000_000, 1)
    types = struct.pack(">lBBlBB", jump.before_seconds, 0, 0, jump.after_seconds, 0, 4)
    return empty + header + change + types + b"AAA\0BBB\0" + f"\nBBB{_posix(-jump.after_seconds)}\n".encode()


def _posix(seconds: int) -> str:
    sign, rest = "-" if seconds < 0 else "", abs(seconds)
    return f"{sign}{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
