"""docs/faults.md names tests and faults that there are, and leaves no case out."""

from __future__ import annotations

import re
from pathlib import Path

from tests.faults.faults import FAULTS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "faults.md").read_text()
CASES = [line for line in PAGE.partition("## Cases")[2].splitlines() if re.match(r"\| \d", line)]


def test_each_of_the_29_cases_has_its_line() -> None:
    numbers = [int(line.split("|")[1]) for line in CASES]
    assert numbers == [2, 4, 6, 8, *range(10, 60, 2)]
    assert len(numbers) == 29


def test_every_test_that_is_named_is_there() -> None:
    sources: dict[str, str] = {}
    for file in (ROOT / "tests").rglob("test_*.py"):
        sources[file.name] = sources.get(file.name, "") + file.read_text()
    everything = "".join(sources.values())
    named = re.findall(r"`(?:[\w/]*?(test_\w+\.py))?(?:::)?(test_\w+)?`", PAGE)
    assert len(named) > 40
    for name, test in named:
        assert not name or name in sources, name
        assert not test or f"def {test}(" in (sources[name] if name else everything), test


def test_every_fault_that_a_case_names_is_there() -> None:
    for line in CASES:
        for listed in re.findall(r"[Ff]aults? ((?:`[^`]+`(?:, )?)+)", line):
            for name in re.findall(r"`([^`]+)`", listed):
                known = any(fault in (name, f"die at {name}") for fault in FAULTS)
                assert known, name
