"""Answers questions with croniter 7: a line of JSON in, a line of JSON out. Runs in an environment of its own.

    {"expr": "0 9 * * *", "tz": "Europe/Berlin", "after": 1767225600, "count": 2}
    [1767254400, 1767340800]       or       "why not"

Given no line yet, it says which versions it has.
"""

import json
import sys
import zoneinfo
from datetime import UTC, datetime
from importlib.metadata import version

from croniter import croniter

zoneinfo.reset_tzpath(to=[])  # PyPI's tzdata alone, as in the product


def answer(question: dict) -> object:
    asked = datetime.fromtimestamp(question["after"], UTC).astimezone(zoneinfo.ZoneInfo(question["tz"]))
    try:
        # The rule of cron for a day field that begins with "*": both must match. croniter calls it a bug.
        walk = croniter(question["expr"], asked, implement_cron_bug=True)
        return [int(walk.get_next(datetime).timestamp()) for _ in range(question["count"])]
    except Exception as error:
        return f"{type(error).__name__}: {error}"


print(json.dumps({name: version(name) for name in ("croniter", "tzdata")}), flush=True)
for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
