"""Which slot a job has: a hash table of four bytes a place, for millions of jobs at once.

A dictionary costs about a hundred bytes a job, most of it the two integers. Here a
place holds a slot, and the job's id is read from the column that is there anyway:

    place   hash(id)  +1    +2
    table     17     GONE   4     EMPTY        id -> hash -> first place whose slot has that id
    job_id    [17] = 901   [4] = 77            a search ends at EMPTY, and goes on past GONE

Everything takes arrays: a step looks at one place for each id that is still open.
The table is at most half full, so that a search takes one or two steps.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from cronstream.records import Int64s

Slots = npt.NDArray[np.int32]

ABSENT: Final = -1
"""Instead of a slot: the job has none."""
_EMPTY: Final = -1
_GONE: Final = -2
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_SMALLEST_BITS: Final = 11


class SlotIndex:
    """Slots by job id. ``job_id`` is always the column of all slots: it may be another array each time."""

    def __init__(self) -> None:
        self._clear(_SMALLEST_BITS)
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def nbytes(self) -> int:
        """Bytes held by the table."""
        return self._table.nbytes

    def find(self, job_id: Int64s, wanted: Int64s) -> Slots:
        """The slot of each wanted id, or ABSENT."""
        found = np.full(len(wanted), ABSENT, np.int32)
        for rows, _, slots in self._search(job_id, wanted):
            found[rows] = slots
        return found

    def add(self, job_id: Int64s, slots: Slots) -> None:
        """Enter slots whose ids stand in the column already; no id twice, none that is here."""
        self._make_room(job_id, len(slots))
        self._live += len(slots)
        self._place(job_id, slots)

    def remove(self, job_id: Int64s, slots: Slots) -> None:
        """Take out slots that are here, while their ids still stand in the column."""
        for _, places, _ in self._search(job_id, job_id[slots]):
            self._table[places] = _GONE
        self._live -= len(slots)

    def _search(self, job_id: Int64s, wanted: Int64s) -> list[tuple[Int64s, Int64s, Slots]]:
        """Where ids are found, in parts: rows of ``wanted``, places, slots."""
        parts = []
        rows = np.arange(len(wanted))
        places = self._first(wanted)
        while rows.size:
            slots = self._table[places]
            hit = slots >= 0
            hit &= job_id[slots] == wanted[rows]  # a negative slot reads some other row, and does not count
            parts.append((rows[hit], places[hit], slots[hit]))
            open_still = ~hit
            open_still &= slots != _EMPTY
            rows = rows[open_still]
            places = (places[open_still] + 1) & self._mask
        return parts

    def _place(self, job_id: Int64s, slots: Slots) -> None:
        """Each into the first free place from its own; of several that want one, one gets it, the others go on."""
        places = self._first(job_id[slots])
        while slots.size:
            before = self._table[places]
            free = before < 0
            self._table[places[free]] = slots[free]
            open_still = self._table[places] != slots
            placed = ~open_still
            self._used += int(np.count_nonzero(before[placed] == _EMPTY))
            slots = slots[open_still]
            places = (places[open_still] + 1) & self._mask

    def _make_room(self, job_id: Int64s, more: int) -> None:
        """Keep half of the places empty; places of what is gone count as used until the table is made anew."""
        if 2 * (self._used + more) <= len(self._table):
            return
        here = self._table[self._table >= 0]
        bits = _SMALLEST_BITS
        while 2**bits < 3 * (len(here) + more):
            bits += 1
        self._clear(bits)
        self._place(job_id, here)

    def _clear(self, bits: int) -> None:
        self._table: Slots = np.full(2**bits, _EMPTY, np.int32)
        self._mask = 2**bits - 1
        self._shift = np.uint64(64 - bits)
        self._used = 0

    def _first(self, job_ids: Int64s) -> Int64s:
        """The place where the search for an id begins: the product's upper bits."""
        return ((job_ids.view(np.uint64) * _GOLDEN) >> self._shift).astype(np.int64)
