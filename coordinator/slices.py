"""What falls due in a range of time, read slice by slice, soonest first, and handed over.

While one slice is taken apart and handed over the next is being read, unless other things are to be
looked up first: of two arrivals the later one must have been read later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from coordinator.arrivals import Loaded
from coordinator.columns import Columns, Row, instant_us
from coordinator.database_clock import DatabaseClock
from coordinator.handing import Handing
from coordinator.loading import Loading, Slice

PART = 2000
"""Jobs the dispatcher takes in at once, between two looks at what is due: some two milliseconds."""
LARGEST = 8000
"""Jobs read at once."""
_SMALLEST = 500
"""The first slice is small, so that the first trigger does not wait for a large one."""
_LAST_ID = 2**63 - 1


class Slices:
    """The reader's thread alone uses it."""

    def __init__(
        self,
        loading: Loading,
        handing: Handing,
        database_clock: DatabaseClock,
        *,
        has_to_look_up: Callable[[], bool],
        look_up: Callable[[], None],
        largest: int = LARGEST,
    ) -> None:
        """``look_up`` is called between two slices, where nothing is being read."""
        self._loading = loading
        self._handing = handing
        self._database_clock = database_clock
        self._has_to_look_up = has_to_look_up
        self._look_up = look_up
        self._largest = largest
        self._columns = Columns()

    def read(self, after_us: int | None, until_us: int) -> None:
        """What falls due in (after, until]; ``after_us`` None: from the longest overdue on. Raises Stopping."""
        after_id = -_LAST_ID if after_us is None else _LAST_ID
        size = min(_SMALLEST, self._largest)
        following: Slice | None = self._begin(after_us, after_id, until_us, size)
        while following is not None:
            slice_, following = following, None
            rows = slice_.rows()
            more = len(rows) == slice_.size
            if more:
                after_us, after_id, size = instant_us(rows[-1]), rows[-1][0], min(size * 4, self._largest)
                if not self._has_to_look_up():
                    following = self._begin(after_us, after_id, until_us, size)
            self._hand_over(slice_, rows)
            if following is None:
                self._look_up()
                if more:
                    following = self._begin(after_us, after_id, until_us, size)

    def close(self) -> None:
        """After the stop event was set."""
        self._loading.close()

    def _begin(self, after_us: int | None, after_id: int, until_us: int, size: int) -> Slice:
        as_of, now_us = self._handing.flushed, self._database_clock.now_us()
        return self._loading.begin(after_us, after_id, until_us, size, as_of=as_of, now_us=now_us)

    def _hand_over(self, slice_: Slice, rows: Sequence[Row]) -> None:
        for start in range(0, len(rows), PART):
            self._handing.await_room()
            jobs = self._columns.of(rows[start : start + PART], slice_.now_us)
            self._handing.put(Loaded(jobs, slice_.as_of))
