"""``python -m benchmarks.document``: put the last run's tables into docs/performance.md.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``; the sentence above it that
says when it was measured belongs to it. Tables that the last run did not make stay as they are.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.tables import FILE

PAGE = Path("docs/performance.md")
_BLOCK = re.compile(r"<!-- table: ([\w.]+) -->\n.*?<!-- end -->", re.DOTALL)


def replaced(page: str, tables: Mapping[str, Mapping[str, str]]) -> tuple[str, set[str]]:
    """The page with the tables in their places, and the names that had a place."""
    used: set[str] = set()

    def block(found: re.Match[str]) -> str:
        name = found[1]
        if name not in tables:
            return found[0]
        used.add(name)
        made = tables[name]
        title = made["title"][:1].upper() + made["title"][1:]
        return f"<!-- table: {name} -->\n{title} (measured {made['at']} UTC).\n\n{made['markdown']}\n<!-- end -->"

    return _BLOCK.sub(block, page), used


def main() -> int:
    """Rewrite the page; says which tables have no place in it."""
    if not FILE.exists():
        print(f"there is no {FILE}: run make bench first", file=sys.stderr)
        return 1
    tables = json.loads(FILE.read_text())
    page, used = replaced(PAGE.read_text(), tables)
    PAGE.write_text(page)
    print(f"{PAGE}: {len(used)} tables replaced")
    if missing := sorted(set(tables) - used):
        print(f"without a place: {', '.join(missing)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
