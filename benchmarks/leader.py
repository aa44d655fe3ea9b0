"""The coordinator process with a recorder: ``python -m benchmarks.leader FILE``.

It is ``python -m coordinator`` but for two things: every lateness that the
dispatcher notes (the broker's acknowledgement of the commit minus the scheduled
time) is appended to FILE.lateness, where the product keeps a histogram, and
the time from an edit's commit until its job is held in the wheel to FILE.armed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

import coordinator.office
from coordinator.__main__ import main
from coordinator.arrivals import Edit, JobColumns
from coordinator.dispatcher import Dispatcher
from coordinator.lateness import Lateness
from cronstream.records import Int64s


class Record(Lateness):
    """A histogram that writes down everything as well: second, count, then the latenesses as int32."""

    def __init__(self, out: BinaryIO) -> None:
        super().__init__()
        self._out = out

    def record(self, second: int, late_us: Int64s) -> None:
        super().record(second, late_us)
        self._out.write(np.array([second, len(late_us)], np.int64).tobytes())
        self._out.write(np.clip(late_us, -(2**31), 2**31 - 1).astype(np.int32).tobytes())
        self._out.flush()


class RecordedDispatcher(Dispatcher):
    """Writes down latenesses, and when edits are armed."""

    file: Path

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.figures.lateness = Record(self.file.with_suffix(".lateness").open("ab"))
        self._armed = Record(self.file.with_suffix(".armed").open("ab"))
        self._committed: dict[int, int] = {}

    def _edit(self, edits: Sequence[Edit]) -> None:
        super()._edit(edits)
        for edit in edits:
            self._committed[edit.job_id] = edit.changes[-1].committed_us

    def _hold(self, jobs: JobColumns) -> None:
        super()._hold(jobs)
        if self._committed:
            now_us = self._clock.now_us()
            committed = [self._committed.pop(job_id) for job_id in jobs.job_id.tolist() if job_id in self._committed]
            self._armed.record(now_us // 1_000_000, now_us - np.array(committed, np.int64))


def read(file: Path) -> dict[int, list[npt.NDArray[np.int32]]]:
    """What a recorder wrote, by the second of acknowledgement."""
    data = file.read_bytes() if file.exists() else b""
    found: dict[int, list[npt.NDArray[np.int32]]] = {}
    at = 0
    while at + 16 <= len(data):
        second, count = np.frombuffer(data, np.int64, 2, at).tolist()
        at += 16
        if at + 4 * count > len(data):
            break
        found.setdefault(second, []).append(np.frombuffer(data, np.int32, count, at))
        at += 4 * count
    return found


if __name__ == "__main__":
    RecordedDispatcher.file = Path(sys.argv[1])
    coordinator.office.Dispatcher = RecordedDispatcher  # type: ignore[attr-defined]
    sys.exit(main())
