"""Named queries from sql/queries/*.sql.

    -- name: advance
    -- One line of purpose.
    UPDATE ...

``load("coordinator")["advance"]`` is the text, purpose line included, so that
it shows in the server's logs and views.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import LiteralString

FOLDER = Path(__file__).parent / "queries"
_MARK = "-- name:"


class Queries(Mapping[str, LiteralString]):
    """Query text by name; LiteralString, because it comes from files of this package."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = dict(texts)

    def __getitem__(self, name: str) -> LiteralString:
        return self._texts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def parse(text: str) -> Queries:
    """The queries of a file. Raises ValueError on a double name or a missing purpose line."""
    texts: dict[str, str] = {}
    for block in ("\n" + text).split("\n" + _MARK)[1:]:
        name, _, body = block.partition("\n")
        name, body = name.strip(), body.strip()
        if not name.isidentifier() or name in texts:
            raise ValueError(f"query name {name!r} is twice in the file or no identifier")
        if not body.startswith("-- ") or all(line.startswith("--") for line in body.splitlines()):
            raise ValueError(f"query {name}: a line of purpose (-- ...) and then the statement")
        texts[name] = body.removesuffix(";")
    return Queries(texts)


def load(name: str, folder: Path = FOLDER) -> Queries:
    """The queries of ``<name>.sql``."""
    return parse((folder / f"{name}.sql").read_text(encoding="utf-8"))
