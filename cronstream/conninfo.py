"""Connection strings of Postgres as libpq reads them, ``host=db dbname=app``, checked where no driver may be imported.

What is wrong is said without a word of the string: somebody may have written a password into it.
"""

from __future__ import annotations

import re

_URL = ("postgresql://", "postgres://")
_BLANKS = " \t\n\r\f\v"
_PARAMETER = re.compile(r"\s*(\w+)\s*=\s*+('(?:[^'\\]|\\.)*'|(?!')(?:[^\s\\]|\\.)*)\s*", re.ASCII | re.DOTALL)
"""A name and its value, which is in quotes or ends at a blank; a backslash takes the next character as it is."""


def checked(text: str) -> str:
    """The string, if it is one and has no password in it. Raises ValueError, which quotes nothing of it."""
    if text.lstrip().startswith(_URL):
        raise ValueError("is a URL: write name=value pairs, host=… port=… dbname=… user=…")
    begin = number = 0
    end = len(text.rstrip(_BLANKS))
    while begin < end:
        number += 1
        found = _PARAMETER.match(text, begin)
        if found is None:
            raise ValueError(
                f"its parameter {number} is not of the form name=value; a value with blanks stands in single quotes, "
                "and a quote or backslash in it behind a backslash"
            )
        if found[1] == "password":
            raise ValueError(
                "has a password: put that into a file, and its name into CRONSTREAM_POSTGRES_PASSWORD_FILE"
            )
        begin = found.end()
    return text
