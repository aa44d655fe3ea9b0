"""A disk that was filled refuses every byte, and takes them again once it was freed."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disks import Disk, can_mount, unmount_below

pytestmark = pytest.mark.skipif(not can_mount(), reason="only who may mount file systems can have small disks")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    yield Disk(tmp_path / "small" / "disk", megabytes=1)
    unmount_below(tmp_path)


def test_not_a_byte_is_left_until_it_is_freed(disk: Disk) -> None:
    (disk.folder / "before").write_bytes(b"x" * 300_000)
    disk.fill()
    with pytest.raises(OSError, match="No space left") as refused:
        (disk.folder / "meanwhile").write_bytes(b"x")
    assert refused.value.errno == errno.ENOSPC
    disk.free()
    (disk.folder / "after").write_bytes(b"x" * 300_000)
    assert (disk.folder / "before").read_bytes() == b"x" * 300_000


def test_what_an_interrupted_run_left_mounted_is_found_by_its_folder(disk: Disk, tmp_path: Path) -> None:
    assert disk.folder.is_mount()
    unmount_below(tmp_path / "other")
    assert disk.folder.is_mount()
    unmount_below(tmp_path)
    assert not disk.folder.is_mount()
