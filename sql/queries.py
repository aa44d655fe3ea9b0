"""Named queries from sql/queries/*.sql.

    -- name: advance
    -- One line of purpose.
    UPDATE ...

``load("coordinator")["advance"]`` is the text, purpose line included, so that
it shows in the server's logs and views. What several statements share is a part,
and stands where they name it:

    -- part: epoch
    -- One line of purpose.
    epoch AS (SELECT ...)

    -- name: advance
    -- One line of purpose.
    WITH {epoch} UPDATE ...
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import LiteralString

FOLDER = Path(__file__).parent / "queries"
_BLOCK = re.compile(r"^-- (name|part):(.*)$", re.MULTILINE)


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
    """The queries of a file. Raises ValueError on a double name, a missing purpose line or a part that none names."""
    texts: dict[str, str] = {}
    parts: dict[str, str] = {}
    _, *blocks = _BLOCK.split(text)
    for kind, name, body in zip(blocks[::3], blocks[1::3], blocks[2::3], strict=True):
        name, body = name.strip(), body.strip()
        if not name.isidentifier() or name in texts or name in parts:
            raise ValueError(f"query name {name!r} is twice in the file or no identifier")
        if not body.startswith("-- ") or all(line.startswith("--") for line in body.splitlines()):
            raise ValueError(f"query {name}: a line of purpose (-- ...) and then the statement")
        if kind == "part":
            parts[name] = _without_comment(body)
        else:
            texts[name] = body.removesuffix(";")
    for part, shared in parts.items():
        mark = f"{{{part}}}"
        if not any(mark in body for body in texts.values()):
            raise ValueError(f"part {part}: no query of the file has {mark}")
        texts = {name: body.replace(mark, shared) for name, body in texts.items()}
    return Queries(texts)


def _without_comment(body: str) -> str:
    return "\n".join(line for line in body.splitlines() if not line.startswith("--"))


def load(name: str, folder: Path = FOLDER) -> Queries:
    """The queries of ``<name>.sql``."""
    return parse((folder / f"{name}.sql").read_text(encoding="utf-8"))
