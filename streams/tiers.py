"""Where a retry waits: tier by tier, down to the instant before which it must not be tried. Pure.

A retry goes into the largest tier that is not longer than what remains, waits there for the tier's
time, and again. So whatever lies in one tier waits equally long, and the head of its topic is always the
first that is due. In the smallest tier a record waits for its items' own instant, yet never longer than the
tier: what came earlier holds nobody up for more than that.

    10 min left ─► 256 s ─► 256 s ─► 64 s ─► 16 s ─► 4 s ─► 1 s … not_before ─► retry.due

Items of a record in the smallest tier lie within one ``SLOT_US``, so that they are due together.
"""

from __future__ import annotations

from collections.abc import Iterable

from cronstream.clock import SECOND
from cronstream.records import Batch, Item
from cronstream.topics import RETRY_TIERS

SMALLEST = min(RETRY_TIERS)
SLOT_US = SECOND // 10
"""How far the items of one record in the smallest tier lie apart."""

Tier = int | None
"""A tier, in seconds; None: due, so on to ``retry.due``."""


def tier_of(remaining_us: int) -> Tier:
    """Where a retry waits next that has so long to wait."""
    if remaining_us <= 0:
        return None
    return max((tier for tier in RETRY_TIERS if tier * SECOND <= remaining_us), default=SMALLEST)


def due_us(tier: int, batch: Batch) -> int:
    """When a record of a tier is handed on."""
    until = batch.published_at + tier * SECOND
    if tier != SMALLEST or not len(batch):
        return until
    return min(until, 0 if batch.not_before is None else int(batch.not_before.max()))


def in_tiers(items: Iterable[Item], now_us: int) -> list[tuple[Tier, list[Item]]]:
    """The items by where they wait from ``now_us`` on: the due ones first, in their order."""
    groups: dict[tuple[int, int], tuple[Tier, list[Item]]] = {}
    for item in items:
        tier = tier_of(item.not_before - now_us)
        slot = item.not_before // SLOT_US if tier == SMALLEST else 0
        groups.setdefault((tier or 0, slot), (tier, []))[1].append(item)
    return [groups[place] for place in sorted(groups)]
