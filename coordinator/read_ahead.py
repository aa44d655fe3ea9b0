"""Edits that are planned from the table before capture has brought them.

Capture brings a hundred thousand edits of one statement one after the other, for half a minute on
two busy cores. They stand in the table from their commit on, so what comes behind the newest one
delivered is read there, page by page; and what has waited long for a silent feed is read by the audit. Each is
expected of the feed all the same: one that it passes was lost by capture, and counts as missed.
"""

from __future__ import annotations

from collections.abc import Iterable

from coordinator.audit import OpenChange, missed

MANY = 100
"""Edits that come at once, from which on more are looked for behind them."""


class ReadAhead:
    """One thread owns it: the reader's."""

    def __init__(self, many: int = MANY) -> None:
        self._many = many
        self.after_id: int | None = None
        """The change behind which the next page begins; None: there is nothing to be read ahead."""
        self._expected: dict[int, OpenChange] = {}

    def came_together(self, count: int, newest_id: int) -> None:
        """The feed brought so many edits at once. If they are many, there are more behind them."""
        if count >= self._many:
            self.after_id = max(newest_id, self.after_id or 0)

    def will_read(self, change_id: int) -> bool:
        """True for what stands in the pages to come: it waits for us and not for the feed."""
        return self.after_id is not None and change_id > self.after_id

    def was_read(self, page: Iterable[OpenChange], newest_id: int | None) -> None:
        """These were handed over. ``newest_id`` None: the page was the last."""
        self.expect(page)
        self.after_id = newest_id

    def expect(self, changes: Iterable[OpenChange]) -> None:
        """These are handed over, and the feed has yet to bring them."""
        self._expected.update((change.change_id, change) for change in changes)

    def came(self, change_id: int) -> bool:
        """The feed brought a change; True if it had been read ahead."""
        return self._expected.pop(change_id, None) is not None

    def lost(self, reached_us: int | None) -> int:
        """How many the feed has passed without bringing them; they are expected no longer."""
        lost = missed(self._expected.values(), reached_us)
        for change in lost:
            del self._expected[change.change_id]
        return len(lost)
