"""Java properties: a committed file of common settings, and what differs by place."""

from __future__ import annotations

from collections.abc import Mapping


def parse(text: str) -> dict[str, str]:
    """The settings of a properties file (``key=value`` lines, ``#`` comments)."""
    values = {}
    for line in text.splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            key, _, value = stripped.partition("=")
            values[key.strip()] = value.strip()
    return values


def render(common: str, here: Mapping[str, str]) -> str:
    """The common file with this place's settings added.

    A setting stands in one of the two only: a second one would silently win.
    """
    twice = sorted(parse(common).keys() & here.keys())
    if twice:
        raise ValueError(f"set twice: {', '.join(twice)}")
    return common.rstrip("\n") + "\n\n# This place.\n" + "".join(f"{key}={value}\n" for key, value in here.items())
