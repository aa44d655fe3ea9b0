"""The trust window and the term, by a clock that moves when told to."""

from __future__ import annotations

import pytest

from coordinator.trust import NANOSECONDS, Term, TermOver, TrustWindow
from cronstream.clock import FakeClock


def window(*, ttl: float = 5, margin: float = 1, sent_at: int = 0) -> TrustWindow:
    made = TrustWindow(margin)
    made.renewed(sent_at, ttl)
    return made


def test_trusted_until_ttl_less_margin_after_sending() -> None:
    trust = window(ttl=5, margin=1, sent_at=7)
    assert trust.deadline == 7 + 4 * NANOSECONDS
    assert trust.trusted(trust.deadline - 1)
    assert not trust.trusted(trust.deadline)


def test_a_window_never_renewed_is_closed() -> None:
    assert not TrustWindow(1).trusted(0)


def test_an_older_renewal_does_not_shorten() -> None:
    trust = window(sent_at=10 * NANOSECONDS)
    trust.renewed(3 * NANOSECONDS, 5)
    assert trust.deadline == 14 * NANOSECONDS


def test_a_margin_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="margin"):
        TrustWindow(0)


def test_a_term_ends_by_itself_at_the_deadline() -> None:
    clock = FakeClock()
    term = Term(12, window(), clock)
    clock.advance(3.999)
    assert term.trusted()
    term.check()
    clock.advance(0.001)
    assert not term.trusted()
    assert term.over.is_set()
    with pytest.raises(TermOver, match="term 12 is over: the trust window closed"):
        term.check()


def test_renewals_carry_a_term_on() -> None:
    clock = FakeClock()
    term = Term(1, window(), clock)
    for _ in range(10):
        clock.advance(3)
        term.renewed(clock.boot_ns() - NANOSECONDS // 2, 5)
    assert term.trusted()
    assert term.remaining_seconds == pytest.approx(3.5)


def test_a_late_answer_revives_nothing() -> None:
    clock = FakeClock()
    term = Term(1, window(), clock)
    sent = clock.boot_ns() + 3 * NANOSECONDS
    clock.advance(4.5)
    term.renewed(sent, 5)
    assert not term.trusted()
    assert term.remaining_seconds == 0


def test_waking_from_a_suspend_is_past_the_deadline() -> None:
    clock = FakeClock()
    term = Term(1, window(), clock)
    clock.advance(3600)
    assert not term.trusted()


def test_a_step_of_the_system_clock_changes_nothing() -> None:
    clock = FakeClock()
    term = Term(1, window(), clock)
    clock.step_wall(-86_400)
    assert term.trusted()
    clock.step_wall(10 * 86_400)
    assert term.trusted()


def test_the_first_reason_stays() -> None:
    term = Term(1, window(), FakeClock())
    term.end("fenced by Kafka")
    term.end("resigned")
    assert term.reason == "fenced by Kafka"


def test_listeners_are_told_once_and_late_ones_at_once() -> None:
    term = Term(1, window(), FakeClock())
    told: list[str] = []
    term.on_over(lambda: told.append("early"))
    term.end("resigned")
    term.end("again")
    term.on_over(lambda: told.append("late"))
    assert told == ["early", "late"]
