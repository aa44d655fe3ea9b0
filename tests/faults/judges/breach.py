"""A promise that was broken, and what a judge is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.faults.history import History
from tests.faults.oracle import Expected


class Breach(NamedTuple):
    """One sentence about one run, or about the whole history (``job_id`` 0)."""

    promise: str
    what: str
    job_id: int = 0
    scheduled_us: int = 0
    request_id: int = 0


Judge = Callable[[History, Expected], Iterator[Breach]]
