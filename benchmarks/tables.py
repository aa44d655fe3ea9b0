"""Tables for people: printed, and kept as Markdown in .local/bench/tables.json for docs/performance.md."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence

from benchmarks.report import FOLDER

FILE = FOLDER / "tables.json"


def table(name: str, title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table and keep it under ``name``; numbers to three significant digits."""
    lines = [[cell(value) for value in row] for row in rows]
    print(plain(title, head, lines), flush=True)
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    kept[name] = {
        "title": title,
        "markdown": markdown(head, lines),
        "at": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(json.dumps(kept, indent=1) + "\n")


def forget() -> None:
    """Begin with no tables."""
    FILE.unlink(missing_ok=True)


def plain(title: str, head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """For a terminal: the first column left, the others right."""
    widths = [max(len(line[column]) for line in (head, *lines)) for column in range(len(head))]
    rule = ["-" * width for width in widths]
    shown = [
        "  "
        + "  ".join(
            text.ljust(width) if column == 0 else text.rjust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in (head, rule, *lines)
    ]
    return "\n".join(["", title, *shown, ""])


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """For docs/performance.md."""
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines))


def cell(value: object) -> str:
    """A number to three significant digits, thousands apart; nothing as a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
