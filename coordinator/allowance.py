"""A rate, kept by an allowance that grows with time up to a second's worth.

Who takes more than what is left takes it below zero, and the next one waits.
"""

from __future__ import annotations


class Allowance:
    """So many a second. Instants in microseconds, by the database's clock; it may be set back."""

    def __init__(self, per_second: int, now_us: int) -> None:
        self._per_second = per_second
        self._left = float(per_second)
        self._asked_us = now_us

    def left(self, now_us: int) -> float:
        """How much may be spent now."""
        elapsed_us = max(now_us - self._asked_us, 0)
        self._asked_us = max(now_us, self._asked_us)
        self._left = min(self._left + elapsed_us * self._per_second / 1e6, self._per_second)
        return self._left

    def spend(self, count: int) -> None:
        """So many were taken."""
        self._left -= count

    def wait_seconds(self, count: float = 1) -> float:
        """From when ``left`` was asked until there are so many, at most a second's worth."""
        return max(count - self._left, 0) / self._per_second
