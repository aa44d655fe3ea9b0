"""Tables as people read them, and their way into the page."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.document import replaced
from benchmarks.tables import cell, markdown, plain


def test_numbers_have_three_digits_and_nothing_is_a_dash() -> None:
    shown = [cell(value) for value in (None, 0.12345, 12.345, 123456.7, 1000, 7, "p99", True)]
    assert shown == ["-", "0.123", "12.3", "123,457", "1,000", "7", "p99", "True"]


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    lines = plain("a title", ("what", "n"), [["one", "1"], ["three", "1,000"]]).splitlines()
    assert lines[1:] == ["a title", "  what       n", "  -----  -----", "  one        1", "  three  1,000"]


def test_markdown_has_a_rule_below_its_head() -> None:
    assert markdown(("a", "b"), [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


PAGE = """# Performance
<!-- table: herd -->
old
<!-- end -->
words between
<!-- table: burst -->
kept
<!-- end -->
"""


def test_a_table_takes_its_place_in_the_page_and_leaves_the_rest() -> None:
    made = {"title": "herd: all at once", "markdown": "| a |", "at": "2026-11-29 22:30"}
    page, used = replaced(PAGE, {"herd": made, "unknown": made})
    assert used == {"herd"}
    assert "<!-- table: herd -->\nHerd: all at once (measured 2026-11-29 22:30 UTC).\n\n| a |\n<!-- end -->" in page
    assert "old" not in page
    assert "words between\n<!-- table: burst -->\nkept\n<!-- end -->" in page
    again, _ = replaced(page, {"herd": made})
    assert again == page


def test_every_table_has_its_place_in_the_page() -> None:
    root = Path(__file__).parents[3]
    sources = [file.read_text() for file in (root / "benchmarks").rglob("*.py")]
    named = {name for source in sources for name in re.findall(r'\btable\(\s*"(\w+)",', source)}
    assert {"dispatch", "peers", "full_bloat"} <= named
    places = set(re.findall(r"^<!-- table: (\w+) -->$", (root / "docs/performance.md").read_text(), re.MULTILINE))
    assert named <= places
    assert {"burst", "herd", "steady", "full", "summary", "summary_full"} <= places
