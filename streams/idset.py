"""Job ids admitted for one instant: eight bytes an id, searched without Python loops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cronstream.records import Int64s


class IdSet:
    """A set of int64 as sorted runs of falling sizes.

    A run is merged into its neighbour once it is at least half as long, so there
    are at most log2(n) runs, and every id is copied at most log2(n) times.
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[Int64s] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def known(self, ids: Int64s) -> npt.NDArray[np.bool_]:
        """Which of ``ids`` are in the set."""
        found = np.zeros(len(ids), np.bool_)
        for run in self._runs:
            found |= run[np.minimum(run.searchsorted(ids), len(run) - 1)] == ids
        return found

    def add(self, ids: Int64s) -> None:
        """Add ids that are not in the set; ``ids`` must be sorted."""
        if not len(ids):
            return
        run = ids
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.concatenate((self._runs.pop(), run))
            run.sort(kind="stable")
        self._runs.append(run)

    def discard(self, ids: Int64s) -> None:
        """Take ids out again."""
        kept = []
        for run in self._runs:
            at = np.minimum(run.searchsorted(ids), len(run) - 1)
            rest = np.delete(run, at[run[at] == ids])
            if len(rest):
                kept.append(rest)
        self._runs = kept
