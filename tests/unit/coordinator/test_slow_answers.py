"""A warning every so often while one question is open, none while answers come."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from coordinator.slow_answers import LOOK_SECONDS, LOOKS, SlowAnswers
from sql.blockers import Backend


class Alone(Backend):
    """To which there is no second connection."""

    def beside(self) -> psycopg.Connection[Any]:
        raise psycopg.OperationalError


@pytest.fixture
def slow() -> SlowAnswers:
    slow = SlowAnswers("reader")
    slow.close()  # the test looks
    return slow


def test_one_question_that_stays_open_is_told_again_and_again(
    slow: SlowAnswers, caplog: pytest.LogCaptureFixture
) -> None:
    slow.asked(Alone(7, "", ""))
    for _ in range(2 * LOOKS + 1):
        slow.look()
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"Postgres has not answered the reader for {times * LOOKS * LOOK_SECONDS:.0f} s; "
        "nor does it take another connection"
        for times in (1, 2)
    ]


def test_questions_that_are_answered_are_not_told(slow: SlowAnswers, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3 * LOOKS):
        slow.asked(Alone(7, "", ""))
        slow.look()
        slow.answered()
        slow.look()
    assert not caplog.records
