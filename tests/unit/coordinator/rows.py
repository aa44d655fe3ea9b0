"""Definitions as the database gives them, for tests."""

from __future__ import annotations

from typing import Any

from tests.properties.term.tables import DEFAULTS, WORK

SECOND = 1_000_000


def columns(**given: Any) -> dict[str, Any]:
    """A definition's columns; times in microseconds."""
    return {**DEFAULTS, **WORK, "name": "job", "misfire_grace_us": 60 * SECOND, **given}
