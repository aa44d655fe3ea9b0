"""A process that stood still starts nothing until it may know that it was replaced."""

from __future__ import annotations

from workers.trust import NOTICE_NS, Trust

SECOND = 1_000_000_000


def test_a_steady_poll_loop_is_trusted() -> None:
    trust = Trust(6, 0)
    for second in range(1, 20):
        trust.alive(second * SECOND)
        assert trust.holds(second * SECOND + SECOND // 2)


def test_silence_ends_trust() -> None:
    trust = Trust(6, 0)
    assert not trust.holds(4 * SECOND)


def test_after_a_gap_nothing_starts_for_a_while() -> None:
    trust = Trust(6, 0)
    woke = 30 * SECOND
    trust.alive(woke)
    trust.alive(woke + 1)
    assert not trust.holds(woke + 1)
    for step in range(1, 5):
        trust.alive(woke + step * SECOND // 2)
    assert trust.holds(woke + NOTICE_NS)
