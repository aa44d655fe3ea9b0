"""Which dead letters can be redriven, and what is said of the others."""

from __future__ import annotations

from typing import Any

import pytest

from cli.redriving import Letter, refusal

COMMANDS = "cronstream.commands"


def letter(**given: Any) -> Letter:
    usual: dict[str, Any] = {
        "letter_id": 1,
        "state": "open",
        "reason": "poison_record",
        "topic": COMMANDS,
        "partition": 2,
        "offset": 17,
        "job_ids": [],
        "scheduled_time": None,
        "request_id": None,
        "attempts": None,
        "key": b"default/job",
        "value": b"{}",
        "headers": [],
        "cut": False,
    }
    return Letter(**{**usual, **given})


def test_a_record_that_could_not_be_read_is_produced_again() -> None:
    assert refusal(letter(topic="cronstream.outcomes"), {"cronstream.outcomes"}, COMMANDS) is None


def test_poison_of_the_commands_topic_is_poison_again_unless_it_is_forced() -> None:
    assert "send it mended, and discard this one (--force" in (refusal(letter(), {COMMANDS}, COMMANDS) or "")
    assert refusal(letter(), {COMMANDS}, COMMANDS, force=True) is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"reason": "refused_command"}, "send it mended under a new one"),
        ({"reason": "stale_token"}, "it would be refused again"),
        ({"cut": True}, "only the beginning of its record"),
        ({"topic": "other.commands"}, "no topic of this installation"),
        ({"state": "discarded"}, "is discarded already"),
        ({"reason": "exhausted"}, "does not say which run"),
    ],
)
def test_what_would_change_nothing_is_refused_with_a_remedy(given: dict[str, Any], says: str) -> None:
    assert says in (refusal(letter(**given), {COMMANDS}, COMMANDS, force=True) or "")
