"""docs/settings.md is what the settings say, and has all of them."""

from __future__ import annotations

from pathlib import Path

from cronstream.settings import PROCESSES, variables_of
from cronstream.settings_page import page

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    """If not: ``.venv/bin/python -m cronstream.settings_page > docs/settings.md``."""
    assert (ROOT / "docs" / "settings.md").read_text() == page()


def test_it_has_every_setting_of_every_process() -> None:
    text = page()
    for model in PROCESSES.values():
        assert [name for name in variables_of(model) if f"| `{name}` |" not in text] == []


def test_each_process_reads_the_settings_that_the_table_says() -> None:
    for module, model in PROCESSES.items():
        folder = ROOT / module.replace(".", "/")
        file = folder / "__main__.py" if folder.is_dir() else folder.with_suffix(".py")
        assert f"read_settings({model.__name__}, os.environ)" in file.read_text(), module
