"""What can go wrong, in words that say how to mend it."""

from __future__ import annotations


class StackError(Exception):
    """A step failed: which one, and how to mend it. The message is for people."""
