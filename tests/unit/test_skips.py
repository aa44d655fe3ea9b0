"""The page about definitions names every reason for which a scheduled time does not run, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from cronstream.skips import INVALID, REASONS

PAGE = Path(__file__).parents[2] / "docs" / "definitions.md"


def test_the_page_names_every_reason() -> None:
    table = PAGE.read_text().partition("### Why a time did not run")[2].partition("\n\nThe rows of")[0]
    named = re.findall(r"^\| `([^`]+)` \| (?!the time \|)", table, re.MULTILINE)
    assert named == [f"{reason}..." if reason == INVALID else reason for reason in REASONS]
