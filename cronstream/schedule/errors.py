"""The one error a definition can raise: where it is wrong, what is there, what is allowed.

Everything a user can write goes through this class, so that SQL, the command line and the
commands topic all say the same three things: the field, the offending part in quotes, and what
would have been accepted. `hint` is the remedy, when there is one beyond "write something allowed".
"""

from __future__ import annotations

_QUOTED_CHARS = 40
_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


def quoted(value: object) -> str:
    """The offending part as one safe ASCII line: escaped, and cut when it is long."""
    if isinstance(value, str):
        shown = ascii(value[:_QUOTED_CHARS])[1:-1]
        return f'"{shown}{"…" if len(value) > _QUOTED_CHARS else ""}"'
    return _KINDS.get(type(value), "a value of another kind")


class ScheduleError(ValueError):
    """A definition that means nothing, named by field and part.

    field    the column or cron field: "cron", "minute", "timezone", "every", …
    part     the offending text as quoted in the message
    allowed  what the field accepts, as the end of a sentence
    hint     the remedy; empty when `allowed` says it all
    problem  what is wrong with the part, where there is more to say than that it is not allowed
    """

    def __init__(
        self, field: str, part: object, allowed: str, hint: str = "", *, problem: str = "is not allowed"
    ) -> None:
        self.field = field
        self.part = quoted(part)
        self.allowed = allowed
        self.hint = hint
        super().__init__(f"{field}: {self.part} {problem}; allowed: {allowed}")

    def sentence(self) -> str:
        """Message and hint in one line, for places with a single line to fill."""
        return f"{self} ({self.hint})" if self.hint else str(self)
