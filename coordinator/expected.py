"""Edits that were planned from the table while the feed was silent, and that it has yet to bring.

It is silent for as long as capture decodes a long transaction, or is being restarted, and brings everything
afterwards. What it passes without bringing it was lost by capture, and counts as missed.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.audit import OpenChange, missed
from cronstream.changes import Changes


class Expected:
    """One thread owns it: the reader's."""

    def __init__(self) -> None:
        self._by_id: dict[int, OpenChange] = {}

    def expect(self, changes: Iterable[OpenChange]) -> None:
        """These are handed over now."""
        self._by_id.update((change.change_id, change) for change in changes)

    def came(self, changes: Changes) -> dict[int, int]:
        """The feed brought these; returns those that were not expected, by change id."""
        return {
            change_id: job_id
            for change_id, job_id in changes.job_of.items()
            if self._by_id.pop(change_id, None) is None
        }

    def lost(self, reached_us: int | None) -> int:
        """How many the feed has passed; they are expected no longer."""
        lost = missed(self._by_id.values(), reached_us)
        for change in lost:
            del self._by_id[change.change_id]
        return len(lost)
