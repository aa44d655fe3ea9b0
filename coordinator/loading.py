"""Slices of what falls due, read on a connection and a thread of their own.

While the reader takes one slice apart and the dispatcher takes it in, Postgres
is already asked for the next.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from coordinator.asking import OPTIONS, Ask, Asking
from coordinator.columns import Row, adapt
from cronstream.settings import CoordinatorSettings

_OPTIONS = f"{OPTIONS} -c plan_cache_mode=force_custom_plan"


@dataclass(frozen=True, slots=True)
class Slice:
    """At most ``size`` rows of ``load``, asked for when all writes up to ``as_of`` were done, not before ``now_us``."""

    size: int
    as_of: int
    now_us: int
    _answer: Future[list[Row]]

    def rows(self) -> list[Row]:
        """Waits for them. Raises Stopping."""
        return self._answer.result()


class Loading:
    """Asks for slices, one at a time. With an ``ask`` of its own it asks at once and starts no thread."""

    def __init__(
        self,
        settings: CoordinatorSettings,
        ask: Ask | None,
        *,
        stopping: Callable[[], bool],
        pause: Callable[[float], object],
    ) -> None:
        self._ask = ask
        self._asking = Asking(
            settings, "loader", stopping=stopping, pause=pause, binary=True, adapt=adapt, options=_OPTIONS
        )
        self._thread = ThreadPoolExecutor(1, "loader")

    def begin(self, after_us: int | None, after_id: int, until_us: int, size: int, *, as_of: int, now_us: int) -> Slice:
        """Ask for what is due in (after, until], soonest first; ``after_us`` None: before all others."""
        given: dict[str, Any] = {"after_us": after_us, "after_id": after_id, "until_us": until_us, "most": size}
        if self._ask is None:
            return Slice(size, as_of, now_us, self._thread.submit(self._asking, "load", given))
        answer: Future[list[Row]] = Future()
        answer.set_result(self._ask("load", given))
        return Slice(size, as_of, now_us, answer)

    def close(self) -> None:
        """After the stop event was set; a question that is being asked is broken off."""
        self._asking.close()
        self._thread.shutdown(wait=False)
