"""A set of whole numbers: eight bytes each, searched without Python loops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cronstream.records import Int64s

_FEW = 64
"""So many newest numbers are in a set of Python's: what numpy asks for a call is as much as ten of them."""


class IntSet:
    """A set of int64: the newest ones as they came, the others as sorted arrays of falling sizes.

    An array is merged into its neighbour once it is at least half as long, so there
    are at most log2(n) of them, and every number is copied at most log2(n) times.
    """

    __slots__ = ("_newest", "_sorted")

    def __init__(self) -> None:
        self._newest: set[int] = set()
        self._sorted: list[Int64s] = []

    def __len__(self) -> int:
        return len(self._newest) + sum(map(len, self._sorted))

    def known(self, numbers: Int64s) -> npt.NDArray[np.bool_]:
        """Which of ``numbers`` are in the set."""
        newest = self._newest
        found = np.fromiter((number in newest for number in numbers.tolist()), np.bool_, len(numbers))
        for one in self._sorted:
            found |= one[np.minimum(one.searchsorted(numbers), len(one) - 1)] == numbers
        return found

    def add(self, numbers: Int64s) -> None:
        """Add numbers that are not in the set; ``numbers`` must be sorted."""
        if len(numbers) <= _FEW:
            self._newest.update(numbers.tolist())
            if len(self._newest) <= _FEW:
                return
            numbers = np.array(sorted(self._newest), np.int64)
            self._newest = set()
        while self._sorted and len(self._sorted[-1]) <= 2 * len(numbers):
            numbers = np.concatenate((self._sorted.pop(), numbers))
            numbers.sort(kind="stable")
        self._sorted.append(numbers)

    def discard(self, numbers: Int64s) -> None:
        """Take numbers out again."""
        self._newest.difference_update(numbers.tolist())
        kept = []
        for one in self._sorted:
            at = np.minimum(one.searchsorted(numbers), len(one) - 1)
            there = one[at] == numbers
            rest = np.delete(one, at[there]) if there.any() else one
            if len(rest):
                kept.append(rest)
        self._sorted = kept
