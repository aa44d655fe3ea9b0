"""Why a scheduled time does not run: each reason that history has of a skip.

Those of the misfire policies stand with the policies. docs/definitions.md names all of them.
"""

from __future__ import annotations

from cronstream.schedule.misfire import BEYOND_LIMIT, SKIPPED, SUPERSEDED

PAUSED = "paused"
DELETED = "deleted"
EDITED = "edited"
"""A time of the new schedule that came before the leader heard of the edit."""
ALREADY_PAST = "already past when the definition was committed"
OVERLAP = "overlap"
QUEUE_FULL = "queue full"
INVALID = "invalid: "
"""Followed by what cannot be read."""

REASONS = (
    SUPERSEDED,
    SKIPPED,
    BEYOND_LIMIT,
    PAUSED,
    DELETED,
    EDITED,
    ALREADY_PAST,
    OVERLAP,
    QUEUE_FULL,
    INVALID,
)
