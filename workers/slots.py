"""Slots of several classes: each class has its own number and its own fair queue.

Programs need processors and memory, other handlers mostly wait: a herd of the
one must not take the slots of the other.

Pure, as the queues are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from workers.fairness import FairQueue, Waiting

T = TypeVar("T", bound=Waiting)


class Slots(Generic[T]):
    """A ``FairQueue`` in front of each class' slots; ``class_of`` says to which an entry belongs."""

    def __init__(self, numbers: Mapping[str, int], class_of: Callable[[T], str]) -> None:
        self._queues: dict[str, FairQueue[T]] = {name: FairQueue(slots) for name, slots in numbers.items()}
        self._class_of = class_of

    @property
    def waiting(self) -> int:
        """Entries without a slot."""
        return sum(queue.waiting for queue in self._queues.values())

    @property
    def running(self) -> int:
        """Slots in use."""
        return sum(queue.running for queue in self._queues.values())

    def put(self, entry: T) -> None:
        """Stand in line."""
        self._queues[self._class_of(entry)].put(entry)

    def take_all(self) -> Iterable[T]:
        """Whatever may run now, each with a slot until ``done``."""
        for queue in self._queues.values():
            while (entry := queue.take()) is not None:
                yield entry

    def done(self, entry: T) -> None:
        """Give the slot back."""
        self._queues[self._class_of(entry)].done(entry)

    def remove(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Take out of line, without running, everything that is ``unwanted``."""
        return [entry for queue in self._queues.values() for entry in queue.remove(unwanted)]
