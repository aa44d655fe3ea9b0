"""Lateness over the last minute: counts in buckets that grow by a twentieth, one set a second."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from cronstream.records import Int64s

_GROWTH = 1.05
_FIRST_US = 100.0
_BUCKETS = 400  # up to about eight hours
_WINDOW = 60


class Lateness:
    """One thread records, any may ask; an answer can miss what is recorded meanwhile."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, npt.NDArray[np.int64]]] = deque(maxlen=_WINDOW)

    def record(self, second: int, late_us: Int64s) -> None:
        """Add latenesses in microseconds, under the second in which they were seen."""
        index = np.log(np.maximum(late_us, _FIRST_US) / _FIRST_US) / np.log(_GROWTH)
        counts = np.bincount(np.minimum(index.astype(np.int64), _BUCKETS - 1), minlength=_BUCKETS)
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1][1].__iadd__(counts)
        else:
            self._seconds.append((second, counts))

    def quantiles_ms(self, now_second: int, shares: tuple[float, ...]) -> list[float | None]:
        """The lateness that each share of the last minute's triggers stayed under, in milliseconds."""
        recent = [counts for second, counts in list(self._seconds) if second > now_second - _WINDOW]
        total = np.sum(recent, axis=0) if recent else np.zeros(_BUCKETS, np.int64)
        below = np.cumsum(total)
        if not below[-1]:
            return [None for _ in shares]
        found = [int(np.searchsorted(below, share * below[-1])) for share in shares]
        return [round(_FIRST_US * _GROWTH ** (bucket + 1) / 1000, 3) for bucket in found]
